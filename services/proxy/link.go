// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"time"

	"nvpair/internal/jsonrpc"
	"nvpair/services/proxy/route"
	"nvpair/shared/discovery"
	"nvpair/shared/engine"
	"nvpair/shared/facade"
	"nvpair/shared/link"
)

// maxPending keeps sums of loads from overflowing.
const maxPending = 1 << 20

// codeNoFacade answers a request for a facade that is not there (PX-11).
const codeNoFacade = -32002

// handle runs on the link's loop.
func (p *proxy) handle(req *jsonrpc.Request) {
	id, bare := engine.SplitMethod(req.Method)
	switch bare {
	case facade.MethodEnable:
		p.enable(req)
		return
	case facade.MethodSetPriority: // process-scoped, with or without an address (PX-12)
		p.setPriority(req)
		return
	}
	f := p.facade(id)
	if f == nil {
		if _, known := facadeMethods()[bare]; known && !req.IsNotification() {
			req.Fail(jsonrpc.Errorf(codeNoFacade, "no facade is enabled for engine %q on this proxy", id))
			return
		}
		p.link.Unknown(req)
		return
	}
	if bare == discovery.NotifyNodes {
		f.setNodes(req)
		return
	}
	if method, ok := facadeMethods()[bare]; ok {
		method(f, req)
		return
	}
	p.link.Unknown(req)
}

func facadeMethods() map[string]func(*facadeServer, *jsonrpc.Request) {
	return map[string]func(*facadeServer, *jsonrpc.Request){
		facade.MethodNodesList:       (*facadeServer).nodesList,
		facade.MethodNodeSelect:      (*facadeServer).nodeSelect,
		facade.MethodNodeSelected:    (*facadeServer).nodeSelected,
		facade.MethodAddManual:       (*facadeServer).addManual,
		facade.MethodRemoveManual:    (*facadeServer).removeManual,
		facade.MethodSetLocalBackend: (*facadeServer).setLocalBackend,
		facade.MethodSetPort:         (*facadeServer).setPort,
	}
}

// decode reads params and answers a request whose params do not decode.
func decode(req *jsonrpc.Request, v any) bool {
	if err := json.Unmarshal(req.Params, v); err != nil {
		req.Fail(jsonrpc.InvalidParams("%v", err))
		return false
	}
	return true
}

// enable brings one engine's facade up (PX-15 to PX-18).
func (p *proxy) enable(req *jsonrpc.Request) {
	var params facade.Enable
	if !decode(req, &params) {
		return
	}
	e, known := engine.ByID(params.Engine)
	switch {
	case !known:
		req.Fail(jsonrpc.Errorf(jsonrpc.CodeFailed, "unknown engine %q, known are: %s", params.Engine, engine.IDs()))
		return
	case params.Port < 0 || params.Port > 65535:
		req.Fail(jsonrpc.Errorf(jsonrpc.CodeFailed, "port must be between 1 and 65535 (got %d)", params.Port))
		return
	case len(params.AliasAddresses) > 0:
		req.Fail(jsonrpc.Errorf(jsonrpc.CodeFailed, "alias addresses are not served yet"))
		return
	}
	if f := p.facade(e.ID); f != nil {
		req.Reply(facade.Enabled{Engine: e.ID, Port: f.port()})
		return
	}
	f := p.newFacade(e)
	f.state.hostUUID = params.HostUUID
	port := f.startPort(params)
	if err := f.listen(port); err != nil {
		f.notify(facade.NotifyError, facade.BindError{Code: "bind-failed", Message: err.Error(), Port: port})
		req.Fail(rpcError(err))
		return
	}
	p.mu.Lock()
	p.facades[e.ID] = f
	p.mu.Unlock()
	f.notify(facade.NotifyReady, facade.Ready{Version: p.cfg.Version, Port: port})
	f.notify(discovery.MethodSubscribe, discovery.Subscription{Services: []string{e.ServiceKey}})
	req.Reply(facade.Enabled{Engine: e.ID, Port: port})
}

// rpcError is the one place where an error of this worker becomes a code.
func rpcError(err error) *jsonrpc.Error {
	code := jsonrpc.CodeFailed
	if errors.Is(err, errPortTaken) {
		code = link.CodePortTaken
	}
	return &jsonrpc.Error{Code: code, Message: err.Error()}
}

func (f *facadeServer) notify(method string, params any) {
	if err := f.p.link.Notify(f.engine.ID+":"+method, params); err != nil {
		f.log.Debug("notification dropped", "method", method, "err", err)
	}
}

// setPriority takes the scheduler's ranking for all facades (PX-26 to PX-28).
func (p *proxy) setPriority(req *jsonrpc.Request) {
	var params struct {
		Generation uint64   `json:"generation"`
		Nodes      []string `json:"nodes"`
		Ranks      []struct {
			ID       string `json:"id"`
			Pending  int32  `json:"pending"`
			Pressure int32  `json:"gpuPressure"`
		} `json:"ranks"`
	}
	if !decode(req, &params) {
		return
	}
	if params.Generation == 0 {
		req.Fail(jsonrpc.InvalidParams("generation is required and must be greater than 0"))
		return
	}
	if params.Generation > p.currentRanking().Generation {
		r := &route.Ranking{Generation: params.Generation, Nodes: params.Nodes, Load: make(map[string]int32)}
		for _, n := range params.Ranks {
			if n.ID != "" {
				r.Load[n.ID] = min(max(n.Pending, 0), maxPending) + min(max(n.Pressure, 0), 3)
			}
		}
		p.ranking.Store(r)
		p.ledger.Reset(r.Generation)
		for _, f := range p.allFacades() {
			f.rebuild()
		}
	}
	req.Reply(map[string]int{"count": len(p.currentRanking().Nodes)})
}

// setNodes takes a new directory (PX-30, PX-32).
func (f *facadeServer) setNodes(req *jsonrpc.Request) {
	var d discovery.Directory
	if err := json.Unmarshal(req.Params, &d); err != nil {
		f.log.Warn("undecodable directory ignored", "err", err)
		return
	}
	f.state.mu.Lock()
	added, updated, removed := f.state.overlay.replaceRelay(f.engine.ServiceKey, d.Nodes)
	unpinned := f.unpinLocked()
	f.rebuildLocked()
	f.state.mu.Unlock()
	for _, n := range added {
		f.notify(facade.NotifyNodeDiscovered, n)
	}
	for _, n := range updated {
		f.notify(facade.NotifyNodeUpdated, n)
	}
	for _, n := range removed {
		f.notify(facade.NotifyNodeRemoved, n)
	}
	f.tellUnpinned(unpinned)
}

// unpinLocked clears the selection of a node that is gone (PX-23).
func (f *facadeServer) unpinLocked() bool {
	o := &f.state.overlay
	if o.pin == "" || o.has(o.pin) {
		return false
	}
	o.pin = ""
	return true
}

func (f *facadeServer) tellUnpinned(unpinned bool) {
	if unpinned {
		f.notify(facade.NotifySelectionChanged, facade.Selection{})
	}
}

func (f *facadeServer) nodesList(req *jsonrpc.Request) {
	f.state.mu.Lock()
	nodes := f.state.overlay.list(f.engine.ServiceKey)
	f.state.mu.Unlock()
	req.Reply(facade.Nodes{Nodes: nodes})
}

func (f *facadeServer) nodeSelect(req *jsonrpc.Request) {
	var s facade.Selection
	if !decode(req, &s) {
		return
	}
	f.state.mu.Lock()
	known := s.ID == "" || f.state.overlay.has(s.ID)
	if known {
		f.state.overlay.pin = s.ID
		f.rebuildLocked()
	}
	f.state.mu.Unlock()
	if !known {
		req.Fail(jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "node %q not found", s.ID))
		return
	}
	req.Reply(s)
	f.notify(facade.NotifySelectionChanged, s)
}

func (f *facadeServer) nodeSelected(req *jsonrpc.Request) {
	f.state.mu.Lock()
	s := facade.Selection{ID: f.state.overlay.pin}
	f.state.mu.Unlock()
	req.Reply(s)
}

func (f *facadeServer) addManual(req *jsonrpc.Request) {
	var n facade.Node
	if !decode(req, &n) {
		return
	}
	if n.ID == "" || n.Port <= 0 || n.Port > 65535 || len(n.Addresses) == 0 {
		req.Fail(jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "id, port, and at least one address are required"))
		return
	}
	f.state.mu.Lock()
	_, known := f.state.overlay.manual[n.ID]
	f.state.overlay.manual[n.ID] = n
	f.rebuildLocked()
	f.state.mu.Unlock()
	req.Reply(facade.Added{Added: !known})
	if known {
		f.notify(facade.NotifyNodeUpdated, n)
	} else {
		f.notify(facade.NotifyNodeDiscovered, n)
	}
}

func (f *facadeServer) removeManual(req *jsonrpc.Request) {
	var s facade.Selection
	if !decode(req, &s) {
		return
	}
	f.state.mu.Lock()
	n, known := f.state.overlay.manual[s.ID]
	delete(f.state.overlay.manual, s.ID)
	unpinned := f.unpinLocked()
	f.rebuildLocked()
	f.state.mu.Unlock()
	req.Reply(facade.Removed{Removed: known})
	f.tellUnpinned(unpinned)
	if known {
		f.notify(facade.NotifyNodeRemoved, n)
	}
}

// setLocalBackend says where this machine's own engine listens (PX-25).
func (f *facadeServer) setLocalBackend(req *jsonrpc.Request) {
	var b facade.Backend
	if !decode(req, &b) {
		return
	}
	switch {
	case b.Engine != "" && b.Engine != f.engine.ID:
		req.Fail(jsonrpc.Errorf(jsonrpc.CodeInvalidParams,
			"params name engine %q but the request is addressed to %q", b.Engine, f.engine.ID))
		return
	case !isLoopback(b.Host):
		req.Fail(jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "local backend host %q is not loopback", b.Host))
		return
	case f.p.isFacadePort(b.Port):
		// A request must never come back to where it is, in whatever circle.
		req.Fail(jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "port %d is a facade's own", b.Port))
		return
	}
	backend := ""
	if b.Healthy && b.Port > 0 {
		host := b.Host
		if host == "" || host == "localhost" {
			host = "127.0.0.1"
		}
		backend = net.JoinHostPort(host, strconv.Itoa(b.Port))
	}
	f.state.mu.Lock()
	changed := f.state.overlay.backend != backend
	if changed {
		f.state.overlay.backend, f.state.overlay.inventory = backend, nil
		f.rebuildLocked()
	}
	f.state.mu.Unlock()
	req.Reply(discovery.Ack{OK: true})
	if changed && backend != "" {
		f.p.serving.Go(func() { f.ask(time.Now()) })
	}
}

func isLoopback(host string) bool {
	if host == "" || host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback() && !a.Is4In6()
}

func (f *facadeServer) setPort(req *jsonrpc.Request) {
	var params facade.Port
	if !decode(req, &params) {
		return
	}
	if params.Port < 1 || params.Port > 65535 {
		req.Fail(jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "port must be between 1 and 65535"))
		return
	}
	old := f.port()
	if err := f.move(params.Port); errors.Is(err, errPortTaken) {
		req.Fail(jsonrpc.Errorf(jsonrpc.CodeFailed, "port %d is already in use", params.Port)) // DEC-28
		return
	} else if err != nil {
		req.Fail(rpcError(err))
		return
	}
	req.Reply(facade.Ready{Version: f.p.cfg.Version, Port: params.Port})
	if params.Port != old {
		f.notify(facade.NotifyReady, facade.Ready{Version: f.p.cfg.Version, Port: params.Port})
	}
}
