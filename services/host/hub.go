// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"nvpair/internal/jsonrpc"
	"nvpair/internal/supervise"
	"nvpair/shared/brokerapi"
	"nvpair/shared/discovery"
	"nvpair/shared/engine"
	"nvpair/shared/serviceerror"
)

const (
	// maxClients bounds what a runaway program can make the hub hold.
	maxClients = 64
	// maxCalls bounds a client's calls that wait for an answer, so that one
	// client cannot use up what the broker's link takes.
	maxCalls = jsonrpc.DefaultMaxCalls
	// brokerFrame takes the largest answer a worker can give, with its envelope.
	brokerFrame = 8<<20 + 64<<10
	// refusedEvery limits the log's lines on refused clients (DEC-5).
	refusedEvery = time.Second
	// localDeadline is for the hub's own calls to the broker.
	localDeadline = 5 * time.Second
)

var errBrokerExhausted = errors.New("the broker keeps failing; its last messages say why")

// hub shares one broker among clients: ids are rewritten, subscriptions are kept
// per client, and the newest snapshots are kept for whoever subscribes next.
type hub struct {
	cfg       serveConfig
	broker    *supervise.Child
	ln        net.Listener
	stop      context.CancelCauseFunc
	clients   sync.WaitGroup
	announced sync.WaitGroup // what is being written to cfg.Out

	// mu guards the rest. Clients are told under it, which only queues.
	// Lock order: hub.mu, then hubClient.mu.
	mu        sync.Mutex
	link      *brokerLink
	ready     json.RawMessage            // params of app:ready; nil while there is no broker
	snapshots map[string]json.RawMessage // newest params by notification
	connected map[*hubClient]struct{}
	refused   time.Time // when the log was last told of a client over the limit
}

func newHub(cfg serveConfig, ln net.Listener, stop context.CancelCauseFunc) *hub {
	h := &hub{
		cfg: cfg, ln: ln, stop: stop,
		snapshots: make(map[string]json.RawMessage),
		connected: make(map[*hubClient]struct{}),
	}
	h.broker = supervise.New(supervise.Config{
		Name:      "broker",
		Policy:    cfg.Policy,
		Log:       cfg.Log,
		Command:   func() *exec.Cmd { return cfg.command() },
		Attach:    func(p *supervise.Process) supervise.Link { return newBrokerLink(h, p, p.Transport()) },
		Stderr:    func(r io.Reader) { _, _ = io.Copy(cfg.Err, r) },
		Ours:      func(string) bool { return false }, // the hub announces it at app:ready
		Ended:     h.brokerEnded,
		Healthy:   func() {},
		Exhausted: func() { h.stop(errBrokerExhausted) },
	})
	return h
}

// run serves clients until ctx ends, and returns when all of them are gone.
func (h *hub) run(ctx context.Context) {
	closing := context.AfterFunc(ctx, func() { _ = h.ln.Close() })
	defer closing()
	for {
		conn, err := h.ln.Accept()
		switch {
		case err == nil:
			h.accept(ctx, conn)
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			h.clients.Wait()
			return
		default:
			h.cfg.Log.Warn("control socket: accept failed", "err", err)
			select { // out of descriptors, most likely: others may free some
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}

func (h *hub) accept(ctx context.Context, conn net.Conn) {
	c := newHubClient(h, conn)
	h.mu.Lock()
	full := len(h.connected) >= maxClients
	tell := full && time.Since(h.refused) >= refusedEvery
	if tell {
		h.refused = time.Now()
	}
	if !full {
		h.connected[c] = struct{}{}
		if h.ready != nil {
			c.notify(brokerapi.NotifyReady, h.ready)
		}
	}
	h.mu.Unlock()
	if tell {
		h.cfg.Log.Warn("control socket: too many clients, refused", "limit", maxClients)
	}
	if full {
		_ = conn.Close()
		return
	}
	h.clients.Go(func() {
		c.serve(ctx)
		h.mu.Lock()
		delete(h.connected, c)
		h.mu.Unlock()
	})
}

// brokerLink is the hub's end of the link to one broker process.
type brokerLink struct {
	h       *hub
	process *supervise.Process
	conn    *jsonrpc.Conn
}

// newBrokerLink makes and publishes the link to a new broker over its standard
// streams.
func newBrokerLink(h *hub, p *supervise.Process, streams io.ReadWriteCloser) *brokerLink {
	l := &brokerLink{h: h, process: p}
	l.conn = jsonrpc.New(streams, jsonrpc.Config{
		Handle:        l.receive,
		Heard:         p.Heard,
		MaxFrameBytes: brokerFrame,
		MaxCalls:      (maxClients + 1) * maxCalls, // one share for the hub's own
		Log:           h.cfg.Log.With("link", "broker"),
	})
	h.mu.Lock()
	h.link = l
	h.mu.Unlock()
	return l
}

// Serve handles the link until the broker has closed it.
func (l *brokerLink) Serve(ctx context.Context) {
	if err := l.conn.Run(context.WithoutCancel(ctx)); err != nil {
		l.h.cfg.Log.Warn("broker link failed", "err", err)
	}
}

// CloseWrite asks the broker to end.
func (l *brokerLink) CloseWrite() { l.conn.CloseWrite() }

// Ping uses the request every broker answers, so that a broker that is stuck is
// noticed like a stuck worker.
func (l *brokerLink) Ping(seq int64) {
	l.conn.Start(brokerapi.MethodPing, nil, localDeadline, func(r jsonrpc.Response) {
		if r.Err == nil {
			l.process.Answered(seq)
		}
	})
}

// receive takes the broker's notifications. It sends no requests.
func (l *brokerLink) receive(req *jsonrpc.Request) {
	if !req.IsNotification() {
		return
	}
	switch req.Method {
	case brokerapi.NotifyReady:
		l.brokerReady(req.Params)
	case discovery.NotifyNodesChanged, serviceerror.NotifyUpdate:
		l.h.snapshot(req.Method, req.Params)
	default:
		if strings.HasSuffix(req.Method, "-proxy:ready") {
			l.h.remember(req.Method, req.Params) // the baseline of a later subscriber
		}
		l.h.forward(req.Method, req.Params)
	}
}

// brokerReady subscribes to everything on behalf of all clients and tells them.
func (l *brokerLink) brokerReady(params json.RawMessage) {
	l.process.Announced()
	for _, ns := range namespaces() {
		l.conn.Start(ns+":subscribe", nil, localDeadline, func(jsonrpc.Response) {})
	}
	l.h.mu.Lock()
	l.h.ready = params
	for c := range l.h.connected {
		c.notify(brokerapi.NotifyReady, params)
	}
	l.h.mu.Unlock()
	l.conn.Start(brokerapi.MethodStatus, nil, localDeadline, func(r jsonrpc.Response) {
		var s brokerapi.Status
		if json.Unmarshal(r.Result, &s) == nil { // beside the reader: the terminal may be stuck
			l.h.announced.Go(func() { l.h.cfg.announce(s, l.h.ln.Addr()) })
		}
	})
}

// namespaces are the event streams that a client subscribes to.
func namespaces() []string {
	list := []string{"discovery", "engine", "workloads"}
	for _, e := range engine.All() {
		list = append(list, e.Proxy())
	}
	return list
}

func (h *hub) remember(method string, params json.RawMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.snapshots[method] = params
}

// snapshot keeps a list of which only the newest matters and marks it for every
// client.
func (h *hub) snapshot(method string, params json.RawMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.snapshots[method] = params
	for c := range h.connected {
		c.streams[method].Mark()
	}
}

// baseline sends a new subscriber the newest params of a notification, if there
// are any. A newer event cannot come in between and be followed by the older one.
func (h *hub) baseline(c *hubClient, method string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if params := h.snapshots[method]; params != nil {
		c.notify(method, params)
	}
}

// newest returns the kept params of a notification, or nil.
func (h *hub) newest(method string) json.RawMessage {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.snapshots[method]
}

// forward passes an event on to the clients that want it.
func (h *hub) forward(method string, params json.RawMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.connected {
		if c.wants(method) {
			c.notify(method, params)
		}
	}
}

// brokerEnded tells the clients; their pending calls have failed already.
func (h *hub) brokerEnded(_ *supervise.Process, cause string) {
	h.cfg.Log.Error("broker ended unexpectedly", "err", cause)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.link, h.ready = nil, nil
	clear(h.snapshots)
	for c := range h.connected {
		c.notify(brokerapi.NotifyHubBrokerLost, brokerapi.HubBrokerLost{Cause: cause, Restarting: true})
	}
}

// current returns the link to the broker if the broker is ready.
func (h *hub) current() *brokerLink {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ready == nil {
		return nil
	}
	return h.link
}

// status answers hub/status with the broker's own status, judged.
func (h *hub) status(req *jsonrpc.Request) {
	s := brokerapi.HubStatus{State: brokerapi.NodeStarting, Reasons: []string{}, HubPID: os.Getpid()}
	h.mu.Lock()
	s.Clients = len(h.connected)
	h.mu.Unlock()
	child := h.broker.Status()
	s.BrokerRestarts, s.BrokerLastEnd = max(child.Generation-1, 0), child.LastEnd
	l := h.current()
	if l == nil {
		if end := child.LastEnd; end != "" {
			s.State, s.Reasons = brokerapi.NodeDegraded, []string{"the broker is being restarted: " + end}
		}
		req.Reply(s)
		return
	}
	l.conn.Start(brokerapi.MethodStatus, nil, localDeadline, func(r jsonrpc.Response) {
		var b brokerapi.Status
		if raw, err := r.Decode(); err != nil || json.Unmarshal(raw, &b) != nil {
			s.State, s.Reasons = brokerapi.NodeDegraded, []string{"the broker does not answer"}
		} else {
			judge(&s, b)
		}
		req.Reply(s)
	})
}
