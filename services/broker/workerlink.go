// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"nvpair/internal/jsonrpc"
	"nvpair/internal/supervise"
	"nvpair/shared/discovery"
	"nvpair/shared/link"
	"nvpair/shared/serviceerror"
)

// workerLink is the broker's end of the link to one incarnation of a worker.
type workerLink struct {
	b       *Broker
	worker  *workerState
	process *supervise.Process
	conn    *jsonrpc.Conn

	// nodes pushes the directory to this worker; nobody reads services before
	// the worker subscribed.
	nodes    *jsonrpc.Stream
	services atomic.Pointer[[]string] // nil = not subscribed
}

// newWorkerLink makes and publishes the link of a new incarnation over its
// standard streams. It runs before anything is read from the process.
func newWorkerLink(b *Broker, w *workerState, p *supervise.Process, streams io.ReadWriteCloser) *workerLink {
	l := &workerLink{b: b, worker: w, process: p}
	l.conn = jsonrpc.New(streams, jsonrpc.Config{
		Handle:        l.receive,
		Heard:         p.Heard,
		MaxFrameBytes: w.maxFrame,
		Log:           l.log(),
	})
	l.nodes = l.conn.NewStream(discovery.NotifyNodes, l.directory)
	w.setLink(l)
	b.cfg.Log.Info(w.label+" started", "path", p.Path, "pid", p.PID) // BR-8: tools key on this line
	return l
}

// Serve handles the link until the worker has closed it. What is to be done
// after each spawn runs beside it and ends with ctx (BR-16) or the link.
func (l *workerLink) Serve(ctx context.Context) {
	spawned, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	if l.worker.spawned != nil {
		wg.Go(func() { l.worker.spawned(spawned, l.b, l) })
	}
	// The link outlives ctx: what a worker says while it stops still counts (BR-75).
	if err := l.conn.Run(context.WithoutCancel(ctx)); err != nil {
		l.b.cfg.Log.Warn("link failed", "worker", l.worker.name, "err", err)
	}
	end()
	wg.Wait()
	if l.worker.drained != nil {
		l.worker.drained(l.b, l)
	}
}

// CloseWrite ends the worker's input.
func (l *workerLink) CloseWrite() { l.conn.CloseWrite() }

// Ping sends a ping. A queue too full to take it is a ping unanswered.
func (l *workerLink) Ping(seq int64) { _ = l.conn.Notify(link.MethodPing, link.Ping{Seq: seq}) }

// receive takes what a worker sends. Requests are not served (WR-29).
func (l *workerLink) receive(req *jsonrpc.Request) {
	if !req.IsNotification() {
		return
	}
	switch req.Method {
	case link.MethodHello:
		l.hello(req.Params)
	case link.MethodPong:
		var pong link.Ping
		if json.Unmarshal(req.Params, &pong) == nil {
			l.process.Answered(pong.Seq)
		}
	case serviceerror.MethodReport:
		if err := l.b.funnel.reportOfWorker(req.Params); err != nil {
			l.undecodable(req, err)
		}
	case serviceerror.MethodClear:
		if err := l.b.funnel.clear(req.Params); err != nil {
			l.undecodable(req, err)
		}
	case discovery.MethodSubscribe:
		l.subscribe(req)
	default:
		if l.worker.received == nil || !l.worker.received(l.b, l, req) {
			l.b.cfg.Log.Debug("notification dropped", "worker", l.worker.name, "method", req.Method)
		}
	}
}

func (l *workerLink) hello(params json.RawMessage) {
	var h link.Hello
	if err := json.Unmarshal(params, &h); err != nil || h.Liveness < 1 {
		return // a worker of another kind: left alone (DEC-3)
	}
	l.process.Announced()
	l.worker.mu.Lock()
	l.worker.version = h.Version
	l.worker.mu.Unlock()
	if l.worker.announced != nil {
		l.worker.announced(l.b)
	}
}

// subscribe arms the directory push; the current set goes out at once (BR-43).
func (l *workerLink) subscribe(req *jsonrpc.Request) {
	var s discovery.Subscription
	if err := unmarshalOptional(req.Params, &s); err != nil {
		l.undecodable(req, err)
		return
	}
	l.services.Store(&s.Services)
	l.nodes.Mark()
}

// directory is the snapshot of this worker's subscription.
func (l *workerLink) directory() (json.RawMessage, bool) {
	services := l.services.Load()
	if services == nil {
		return nil, false
	}
	return encode(l.b.nodes.directory(*services)), true
}

// log is the log of this link.
func (l *workerLink) log() *slog.Logger { return l.b.cfg.Log.With("link", l.worker.name) }

func (l *workerLink) undecodable(req *jsonrpc.Request, err error) {
	l.b.cfg.Log.Warn("undecodable notification dropped", "worker", l.worker.name, "method", req.Method, "err", err)
}

// unmarshalOptional treats absent params like null: nothing is set.
func unmarshalOptional(params json.RawMessage, v any) error {
	if params == nil {
		return nil
	}
	return json.Unmarshal(params, v)
}

// forwardStderr passes a worker's diagnostics on in whole lines.
func (b *Broker) forwardStderr(r io.Reader) { copyLines(b.cfg.Stderr, r) }
