// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"nvpair/internal/jsonrpc"
	"nvpair/shared/brokerapi"
	"nvpair/shared/discovery"
	"nvpair/shared/link"
	"nvpair/shared/serviceerror"
)

// clientStall is how long a client may take no byte before it is dropped.
const clientStall = 10 * time.Second

// hubClient is one client of the hub.
type hubClient struct {
	h    *hub
	conn *jsonrpc.Conn
	drop context.CancelFunc // set by serve

	streams map[string]*jsonrpc.Stream // snapshots by notification; fixed
	calls   atomic.Int64               // relayed and not answered

	mu         sync.Mutex // guards subscribed and dropped
	subscribed map[string]bool
	dropped    bool
}

func newHubClient(h *hub, conn net.Conn) *hubClient {
	c := &hubClient{h: h, subscribed: make(map[string]bool)}
	c.conn = jsonrpc.New(conn, jsonrpc.Config{
		Handle:        c.receive,
		WriteTimeout:  clientStall,
		RefuseInvalid: true,
		Log:           h.cfg.Log.With("link", "hub client"),
	})
	c.streams = make(map[string]*jsonrpc.Stream)
	for _, method := range []string{discovery.NotifyNodesChanged, serviceerror.NotifyUpdate} {
		c.streams[method] = c.conn.NewStream(method, func() (json.RawMessage, bool) {
			params := h.newest(method)
			return params, params != nil && c.wants(method)
		})
	}
	return c
}

func (c *hubClient) serve(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.mu.Lock()
	c.drop = cancel
	dropped := c.dropped
	c.mu.Unlock()
	if dropped {
		cancel()
	}
	err := c.conn.Run(ctx)
	c.mu.Lock()
	dropped = c.dropped
	c.mu.Unlock()
	switch {
	case dropped:
		c.h.cfg.Log.Warn("hub client does not read, dropped")
	case err != nil:
		c.h.cfg.Log.Debug("hub client link failed", "err", err)
	}
}

// notify queues an event. A client whose queue is full has stopped reading: it
// is dropped, never waited for, and can come back for new baselines.
func (c *hubClient) notify(method string, params any) {
	if err := c.conn.Notify(method, params); !errors.Is(err, jsonrpc.ErrQueueFull) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dropped {
		return
	}
	c.dropped = true
	if c.drop != nil {
		c.drop()
	}
}

// wants reports whether the client gets a notification: those of a stream it
// subscribed to, and all that need no subscription.
func (c *hubClient) wants(method string) bool {
	ns, _, _ := strings.Cut(method, ":")
	if method == "engine:settings-changed" || !slices.Contains(namespaces(), ns) {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.subscribed[ns]
}

func (c *hubClient) receive(req *jsonrpc.Request) {
	if req.IsNotification() { // the broker knows the few that have an effect (BR-19)
		c.relay(req)
		return
	}
	switch req.Method {
	case link.MethodShutdown: // ends the tree for everybody: nvpair stop does that on purpose
		req.Fail(jsonrpc.MethodNotFound(req.Method))
		return
	case brokerapi.MethodHubStop:
		c.h.cfg.Log.Info("stopped by a client")
		req.Reply(nil)
		c.h.stop(nil)
		return
	case brokerapi.MethodHubStatus:
		c.h.status(req)
		return
	}
	ns, verb, _ := strings.Cut(req.Method, ":")
	if slices.Contains(namespaces(), ns) && (verb == "subscribe" || verb == "unsubscribe") {
		c.subscribe(req, ns, verb == "subscribe")
		return
	}
	c.relay(req)
}

// subscribe changes this client's own subscription; the hub itself is always
// subscribed at the broker. A new one gets its baseline behind the answer.
func (c *hubClient) subscribe(req *jsonrpc.Request, ns string, on bool) {
	c.mu.Lock()
	changed := c.subscribed[ns] != on
	c.subscribed[ns] = on
	c.mu.Unlock()
	req.Reply(brokerapi.Subscribed{Subscribed: on})
	if !changed || !on {
		return
	}
	if ns == "discovery" {
		c.streams[discovery.NotifyNodesChanged].Mark()
	}
	c.h.baseline(c, ns+":ready")
}

// relay passes everything else on to the broker, ids rewritten.
func (c *hubClient) relay(req *jsonrpc.Request) {
	l := c.h.current()
	if l == nil {
		req.Fail(jsonrpc.Errorf(jsonrpc.CodeFailed, "the broker is not ready; try again in a moment"))
		return
	}
	if req.IsNotification() {
		if err := l.conn.Notify(req.Method, rawParams(req.Params)); err != nil {
			c.h.cfg.Log.Debug("notification of a hub client dropped", "method", req.Method, "err", err)
		}
		return
	}
	if c.calls.Add(1) > maxCalls {
		c.calls.Add(-1)
		req.Relay(jsonrpc.Response{Err: jsonrpc.ErrTooManyCalls}, brokerFailed)
		return
	}
	l.conn.Start(req.Method, req.Params, 0, func(r jsonrpc.Response) {
		c.calls.Add(-1)
		req.Relay(r, brokerFailed)
	})
}

// brokerFailed introduces the cause of a call that the broker did not answer.
const brokerFailed = "broker call failed"

// rawParams keeps absent params absent.
func rawParams(params json.RawMessage) any {
	if params == nil {
		return nil
	}
	return params
}
