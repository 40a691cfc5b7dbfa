// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"nvpair/internal/jsonrpc"
	"nvpair/internal/worker"
	"nvpair/shared/brokerapi"
	"nvpair/shared/discovery"
	"nvpair/shared/engine"
	"nvpair/shared/link"
	"nvpair/shared/serviceerror"
)

// client is the one client: what it asked for, and its link.
type client struct {
	b    *Broker
	conn *jsonrpc.Conn
	own  map[string]func(*jsonrpc.Request) // by method; fixed

	nodes  *jsonrpc.Stream
	paced  *pacer // of nodes
	errors *jsonrpc.Stream

	// Subscriptions. The read loop changes them, senders read them.
	discovery atomic.Bool
	engines   atomic.Bool
	workloads atomic.Bool
	facades   map[string]*atomic.Bool // by engine id; fixed
}

// nodeListsEvery is how often the client is told of changed nodes at most: many
// nodes that come at once are one list, not one each.
const nodeListsEvery = 500 * time.Millisecond

func newClient(b *Broker) *client {
	c := &client{b: b, facades: make(map[string]*atomic.Bool)}
	c.conn = jsonrpc.New(b.cfg.Client, jsonrpc.Config{
		Handle:        c.receive,
		RefuseInvalid: true,
		Log:           b.cfg.Log.With("link", "client"),
	})
	// The first frame, whatever a worker has to say while the tree starts:
	// nothing is written before serve.
	c.notify(brokerapi.NotifyReady, link.Ready{Version: b.cfg.Version})
	c.own = c.table()
	for _, e := range engine.All() {
		c.facades[e.ID] = new(atomic.Bool)
	}
	c.nodes = c.conn.NewStream(discovery.NotifyNodesChanged, func() (json.RawMessage, bool) {
		return encode(b.clientNodes()), c.discovery.Load()
	})
	c.paced = &pacer{every: nodeListsEvery, mark: c.nodes.Mark}
	c.errors = c.conn.NewStream(serviceerror.NotifyUpdate, func() (json.RawMessage, bool) {
		return b.funnel.latest(), true
	})
	return c
}

// serve announces the tree and answers until the client's stream or ctx ends.
func (c *client) serve(ctx context.Context) {
	if err := c.conn.Run(ctx); err != nil {
		c.b.cfg.Log.Warn("client link failed", "err", err)
	}
}

// notify sends an event to the client. One that does not fit is dropped and
// counted (DEC-116).
func (c *client) notify(method string, params any) {
	if err := c.conn.Notify(method, params); err != nil {
		c.b.cfg.Log.Debug("event for the client dropped", "method", method, "err", err)
	}
}

// notifySoon is notify for what comes with every request.
func (c *client) notifySoon(method string, params json.RawMessage) {
	if err := c.conn.NotifySoon(method, params); err != nil {
		c.b.cfg.Log.Debug("event for the client dropped", "method", method, "err", err)
	}
}

// nodesChanged is the store's change hook.
func (b *Broker) nodesChanged() {
	b.clientNodesChanged()
	for _, l := range b.live() {
		if l.services.Load() != nil {
			l.nodes.Mark()
		}
	}
	b.facades.nodesChanged()
	b.workloads.nodesChanged()
}

// receive runs on the client's read loop and never waits for a worker (BR-23).
func (c *client) receive(req *jsonrpc.Request) {
	if req.IsNotification() {
		c.notification(req)
		return
	}
	if handle, ok := c.own[req.Method]; ok {
		handle(req)
		return
	}
	c.byNamespace(req)
}

// notification serves the only two that have an effect (BR-19).
func (c *client) notification(req *jsonrpc.Request) {
	switch req.Method {
	case link.MethodSetLogLevel:
		if err := c.b.setLevel(req); err != nil {
			c.b.cfg.Log.Warn("log level not changed", "err", err)
		}
	case serviceerror.MethodReport:
		if err := c.b.funnel.report(req.Params); err != nil {
			c.b.cfg.Log.Warn("error report of the client dropped", "err", err)
		}
	default:
		c.b.cfg.Log.Debug("notification of the client dropped", "method", req.Method)
	}
}

// table returns the requests that have a name of their own; all others go by
// their namespace.
func (c *client) table() map[string]func(*jsonrpc.Request) {
	return map[string]func(*jsonrpc.Request){
		brokerapi.MethodPing:    c.ping,
		brokerapi.MethodVersion: c.version,
		brokerapi.MethodStatus:  func(req *jsonrpc.Request) { req.Reply(c.b.status()) },
		link.MethodSetLogLevel:  c.setLevel,
		link.MethodShutdown:     c.shutdown,

		discovery.MethodGetNodes: func(req *jsonrpc.Request) {
			req.Reply(discovery.AvailableNodes{Nodes: c.b.clientNodes()})
		},
		discovery.MethodSubscribe: func(req *jsonrpc.Request) {
			if subscribe(req, &c.discovery, true) {
				c.nodes.Mark() // the baseline, behind the ack
			}
		},
		discovery.MethodUnsubscribe: func(req *jsonrpc.Request) { subscribe(req, &c.discovery, false) },

		serviceerror.MethodGetInitial: c.errorsInitial,
		serviceerror.MethodReport:     func(req *jsonrpc.Request) { acknowledge(req, c.b.funnel.report(req.Params)) },
		serviceerror.MethodClear:      func(req *jsonrpc.Request) { acknowledge(req, c.b.funnel.clear(req.Params)) },

		brokerapi.MethodWorkloadsSubscribe:   func(req *jsonrpc.Request) { subscribe(req, &c.workloads, true) },
		brokerapi.MethodWorkloadsUnsubscribe: func(req *jsonrpc.Request) { subscribe(req, &c.workloads, false) },
		brokerapi.MethodWorkloadsGetInitial:  func(req *jsonrpc.Request) { c.b.workloads.initial(req) },

		brokerapi.MethodEngineSubscribe:   func(req *jsonrpc.Request) { subscribe(req, &c.engines, true) },
		brokerapi.MethodEngineUnsubscribe: func(req *jsonrpc.Request) { subscribe(req, &c.engines, false) },
	}
}

// byNamespace serves what is known by its prefix (BR-24).
func (c *client) byNamespace(req *jsonrpc.Request) {
	for _, e := range engine.All() {
		if m, ok := strings.CutPrefix(req.Method, e.Proxy()+":"); ok {
			c.facade(req, e, m)
			return
		}
	}
	if to := relayTo(req.Method); to != "" {
		c.b.relay(req, to, req.Method)
		return
	}
	req.Fail(jsonrpc.MethodNotFound(req.Method))
}

func (c *client) ping(req *jsonrpc.Request) {
	req.Reply(brokerapi.Pong{
		Pong: true, Version: c.b.cfg.Version,
		UptimeMillis: time.Since(c.b.started).Milliseconds(),
	})
}

func (c *client) version(req *jsonrpc.Request) { req.Reply(link.Ready{Version: c.b.cfg.Version}) }

func (c *client) shutdown(req *jsonrpc.Request) {
	req.Reply(nil)
	c.b.stop()
}

func (c *client) setLevel(req *jsonrpc.Request) {
	if err := c.b.setLevel(req); err != nil {
		req.Fail(err)
	}
}

// setLevel changes the broker's level and passes it on to every live worker.
func (b *Broker) setLevel(req *jsonrpc.Request) error {
	name, err := worker.SetLevel(b.cfg.Log, b.cfg.Level, req.Params)
	if err != nil {
		return err
	}
	req.Reply(link.LogLevel{Level: name})
	for _, l := range b.live() {
		if err := l.conn.Notify(link.MethodSetLogLevel, link.LogLevel{Level: name}); err != nil {
			b.cfg.Log.Debug("log level not passed on", "worker", l.worker.name, "err", err)
		}
	}
	return nil
}

// errorsInitial answers with an empty list where there is no store (EB-3).
func (c *client) errorsInitial(req *jsonrpc.Request) {
	l := c.b.byName[workerErrors].current()
	if l == nil {
		req.Reply([]serviceerror.ServiceError{})
		return
	}
	l.conn.Start(req.Method, req.Params, storeDeadline, func(r jsonrpc.Response) {
		if errors.Is(r.Err, jsonrpc.ErrClosed) { // it died meanwhile: as if it had been down
			req.Reply([]serviceerror.ServiceError{})
			return
		}
		req.Relay(r, serviceerror.MethodGetInitial+" failed")
	})
}

// storeDeadline is for calls to nvpair-errors.
const storeDeadline = 5 * time.Second

func acknowledge(req *jsonrpc.Request, err error) {
	if err != nil {
		req.Fail(jsonrpc.InvalidParams("%v", err))
		return
	}
	req.Reply(nil)
}

// subscribe sets a subscription and acknowledges. It reports whether the
// subscription changed.
func subscribe(req *jsonrpc.Request, flag *atomic.Bool, on bool) (changed bool) {
	changed = flag.Swap(on) != on
	req.Reply(brokerapi.Subscribed{Subscribed: on})
	return changed
}
