// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"

	"nvpair/internal/applog"
	"nvpair/internal/jsonrpc"
	"nvpair/shared/link"
)

// inboxLen is how many messages may wait for the loop. It only smooths bursts;
// a full inbox holds back the reader.
const inboxLen = 64

// Config is the part of a worker's configuration that all workers have.
type Config struct {
	Link    io.ReadWriteCloser // to the broker; owned by Serve
	Version string             // reported in ready and hello
	Log     *slog.Logger       // required
	Level   *slog.LevelVar     // of Log, changed by log/set-level; required

	// MaxFrameBytes limits an inbound frame; 0 is 1 MiB.
	MaxFrameBytes int
	// NoReady leaves the ready notification out of the announcement, for a
	// worker whose contract has none (NI-18).
	NoReady bool
	// Draining, if set, is called once when the worker is to stop, while the
	// link still takes what it has to say. It must be bounded.
	Draining func()
}

// SnapshotFrame is the frame limit of a worker that is sent directories: 512
// nodes with their models may exceed the default (DEC-116).
const SnapshotFrame = 8 << 20

// Link is a worker's end of its link to the broker. Besides Serve, the methods
// of Conn may be used from any goroutine.
type Link struct {
	*jsonrpc.Conn

	cfg      Config
	inbox    chan *jsonrpc.Request
	serving  context.Context // ends when the worker is to stop
	stop     context.CancelFunc
	loopDone chan struct{} // closed when the last message has been handled
	drained  chan struct{} // closed when Draining has returned
}

// NewLink returns a link on which nothing moves before Serve. Whatever is sent
// meanwhile comes after the worker's announcement.
func NewLink(cfg Config) *Link {
	l := &Link{cfg: cfg, inbox: make(chan *jsonrpc.Request, inboxLen), loopDone: make(chan struct{}), drained: make(chan struct{})}
	l.serving, l.stop = context.WithCancel(context.Background())
	l.Conn = jsonrpc.New(cfg.Link, jsonrpc.Config{
		Handle: l.receive, Ended: l.inputEnded, MaxFrameBytes: cfg.MaxFrameBytes, Log: cfg.Log,
	})
	l.announce()
	return l
}

// Serve announces the worker and handles messages until ctx ends, the input
// ends or a shutdown request came, and returns when the link is closed. handle
// takes what is no control message; a request must be answered, now or later.
func (l *Link) Serve(ctx context.Context, handle func(*jsonrpc.Request)) {
	defer context.AfterFunc(ctx, l.stop)()
	open, closeLink := context.WithCancel(context.Background())
	go func() {
		defer close(l.drained)
		<-l.serving.Done()
		if l.cfg.Draining != nil {
			l.cfg.Draining()
		}
		closeLink() // whatever Draining said is queued and still written
	}()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := l.Run(open); err != nil {
			l.cfg.Log.Warn("link read failed", "err", err) // handled like the end of input (WR-24)
		}
	}()
	l.loop(handle)
	close(l.loopDone)
	<-ended
	<-l.drained
}

// loop handles messages until the input has ended or the worker is to stop.
func (l *Link) loop(handle func(*jsonrpc.Request)) {
	for {
		select {
		case req, more := <-l.inbox:
			if !more {
				return
			}
			if l.serving.Err() == nil {
				l.dispatch(req, handle)
			}
		case <-l.serving.Done():
			return
		}
	}
}

// announce queues the first two frames of every worker, in this order (DEC-113).
// An empty queue takes them.
func (l *Link) announce() {
	if !l.cfg.NoReady {
		_ = l.Notify(link.MethodReady, link.Ready{Version: l.cfg.Version})
	}
	_ = l.Notify(link.MethodHello, link.Hello{Liveness: 1, Version: l.cfg.Version})
}

func (l *Link) receive(req *jsonrpc.Request) {
	select {
	case l.inbox <- req:
	case <-l.serving.Done():
	}
}

// inputEnded lets the loop finish what had arrived before the link closes.
func (l *Link) inputEnded() {
	close(l.inbox)
	<-l.loopDone
	l.stop()
	<-l.drained
}

func (l *Link) dispatch(req *jsonrpc.Request, handle func(*jsonrpc.Request)) {
	switch {
	case req.Method == link.MethodPing && req.IsNotification():
		l.pong(req)
	case req.Method == link.MethodSetLogLevel:
		l.setLevel(req)
	case req.Method == link.MethodShutdown && !req.IsNotification():
		req.Reply(nil)
		l.stop()
	default:
		handle(req)
	}
}

func (l *Link) pong(req *jsonrpc.Request) {
	var ping link.Ping
	if err := json.Unmarshal(req.Params, &ping); err != nil {
		l.cfg.Log.Warn("undecodable ping", "err", err)
		return
	}
	_ = l.Notify(link.MethodPong, ping) // a link that fails to take it is judged by the broker
}

func (l *Link) setLevel(req *jsonrpc.Request) {
	name, err := SetLevel(l.cfg.Log, l.cfg.Level, req.Params)
	switch {
	case err == nil:
		req.Reply(link.LogLevel{Level: name})
	case req.IsNotification():
		l.cfg.Log.Warn("log level not changed", "err", err)
	default:
		req.Fail(err)
	}
}

// SetLevel applies the params of log/set-level and returns the level's canonical
// name (WR-30 to WR-34). The error is an invalid-params *jsonrpc.Error.
func SetLevel(log *slog.Logger, level *slog.LevelVar, params json.RawMessage) (string, error) {
	var p link.LogLevel
	if err := json.Unmarshal(params, &p); err != nil {
		return "", jsonrpc.InvalidParams(`want {"level": "debug|info|warn|error"}, got %.100s`, params)
	}
	l, err := applog.ParseLevel(p.Level)
	if err != nil {
		return "", jsonrpc.InvalidParams("%v", err)
	}
	level.Set(l)
	name := applog.LevelName(l)
	log.Info("log level changed", "level", name)
	return name, nil
}

// Unknown answers a message nobody handles: an error for a request, a debug line
// for a notification (WR-36).
func (l *Link) Unknown(req *jsonrpc.Request) {
	if req.IsNotification() {
		l.cfg.Log.Debug("unknown notification dropped", "method", req.Method)
		return
	}
	req.Fail(jsonrpc.MethodNotFound(req.Method))
}
