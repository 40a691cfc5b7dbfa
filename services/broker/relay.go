// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"encoding/json"
	"strings"

	"nvpair/internal/jsonrpc"
	"nvpair/shared/engine"
	"nvpair/shared/facade"
	"nvpair/shared/manualnodes"
	"nvpair/shared/nodesettings"
)

// relayTo returns the worker whose namespace a method is in (BR section 5), or ""
// for none and for the methods in one that no client may call.
func relayTo(method string) string {
	switch method {
	case "engine:configure-launch", "engine:set-reserved-port":
		return ""
	case manualnodes.MethodAdd, manualnodes.MethodRemove, manualnodes.MethodList:
		return workerManual
	}
	switch {
	case strings.HasPrefix(method, nodesettings.Namespace):
		return workerSettings
	case strings.HasPrefix(method, "engine:"):
		return workerEngines
	case strings.HasPrefix(method, "cluster:"), strings.HasPrefix(method, "nodes:"):
		return workerCluster
	}
	return ""
}

// relay passes a request on and its answer back, both untouched but for the name
// of a node to remove (MN-37). Requests to one
// worker go out in the client's order; answers come back as they come (DEC-4).
func (b *Broker) relay(req *jsonrpc.Request, name, method string) {
	if method == "engine:set-port" && b.refusePort(req) {
		return
	}
	if method == manualnodes.MethodRemove {
		req.Params = b.manual.named(req.Params)
	}
	b.relayThen(req, name, method, func(jsonrpc.Response) {})
}

// relayThen is relay with something to do once the answer is there, before the
// client has it. It must not block.
func (b *Broker) relayThen(req *jsonrpc.Request, name, method string, then func(jsonrpc.Response)) {
	w := b.byName[name]
	l := w.current()
	if l == nil {
		req.Fail(jsonrpc.Errorf(jsonrpc.CodeFailed, "%s", w.absent))
		return
	}
	l.conn.Start(method, req.Params, w.deadline, func(r jsonrpc.Response) {
		then(r)
		req.Relay(r, w.callPrefix+" call failed")
	})
}

// facade serves one engine's facade namespace.
func (c *client) facade(req *jsonrpc.Request, e engine.Engine, m string) {
	switch m {
	case "shutdown", "node/set-priority": // generations of priorities are the broker's alone (DEC-48)
		req.Fail(jsonrpc.MethodNotFound(req.Method))
	case "get-status":
		req.Reply(c.b.facades.status(e))
	case "subscribe", "unsubscribe":
		if subscribe(req, c.facades[e.ID], m == "subscribe") && m == "subscribe" {
			c.facadeBaseline(e)
		}
	default:
		if m == facade.MethodSetPort && c.b.refusePort(req) {
			return
		}
		if !c.b.facades.isUp(e) {
			req.Fail(jsonrpc.Errorf(jsonrpc.CodeFailed, "%s not available", e.Proxy()))
			return
		}
		c.b.relayThen(req, workerProxy, e.ID+":"+m, func(r jsonrpc.Response) {
			switch {
			case r.Err != nil || r.Error != nil:
			case m == facade.MethodSetPort:
				c.b.facades.chosen(e)
			case m == facade.MethodSetLocalBackend:
				c.b.facades.forgetBackend(e)
			}
		})
	}
}

// facadeBaseline repeats a facade's ready to a new subscriber, if it is up.
func (c *client) facadeBaseline(e engine.Engine) {
	if ready := c.b.facades.baseline(e); ready != nil {
		c.notify(e.Proxy()+":ready", ready)
	}
}

// refusePort answers a choice of a port that cannot be one, or that is held for
// the clients that OLLAMA_HOST sends there (BR-26, BR-100).
func (b *Broker) refusePort(req *jsonrpc.Request) bool {
	var p facade.Port
	switch err := json.Unmarshal(req.Params, &p); {
	case err != nil || p.Port < 1 || p.Port > 65535:
		req.Fail(jsonrpc.InvalidParams("port must be 1..65535"))
	case p.Port == b.facades.alias.port:
		req.Fail(jsonrpc.Errorf(jsonrpc.CodeFailed, "port %d is the inherited OLLAMA_HOST proxy alias", p.Port))
	default:
		return false
	}
	return true
}
