// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"encoding/json"
	"errors"

	"nvpair/internal/jsonrpc"
	"nvpair/shared/discovery"
	"nvpair/shared/engine"
	"nvpair/shared/facade"
	"nvpair/shared/link"
)

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
	case len(params.AliasAddresses) > 0 && !e.Aliases:
		req.Fail(jsonrpc.Errorf(jsonrpc.CodeFailed, "%s's facade has no alias addresses", e.DisplayName))
		return
	}
	if f := p.facade(e.ID); f != nil {
		req.Reply(f.enabled())
		return
	}
	f := p.newFacade(e)
	f.state.hostUUID = params.HostUUID
	port := f.startPort(params)
	aliases, err := parseAliases(params.AliasAddresses, port)
	if err != nil {
		req.Fail(rpcError(err))
		return
	}
	if err := f.listen(port); err != nil {
		f.notify(facade.NotifyError, facade.BindError{Code: "bind-failed", Message: err.Error(), Port: port})
		req.Fail(rpcError(err))
		return
	}
	if len(aliases) > 0 {
		f.listenAliases(aliases)
	}
	p.mu.Lock()
	p.facades[e.ID] = f
	p.mu.Unlock()
	if p.ctx.Err() != nil { // the worker is stopping, and may have closed its facades already
		f.close()
	}
	f.notify(facade.NotifyReady, facade.Ready{Version: p.cfg.Version, Port: port})
	f.notify(discovery.MethodSubscribe, discovery.Subscription{Services: []string{e.ServiceKey}})
	req.Reply(f.enabled())
}

// enabled says what the facade has bound.
func (f *facadeServer) enabled() facade.Enabled {
	f.state.mu.Lock()
	defer f.state.mu.Unlock()
	return facade.Enabled{Engine: f.engine.ID, Port: f.state.port, Aliases: f.state.aliased}
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

func (f *facadeServer) setPort(req *jsonrpc.Request) {
	var params facade.Port
	if !decode(req, &params) {
		return
	}
	if params.Port < 1 || params.Port > 65535 {
		req.Fail(jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "port must be between 1 and 65535"))
		return
	}
	f.p.serving.Go(func() { // the port is written to disk, which the link does not wait for
		moved, err := f.move(params.Port)
		switch {
		case errors.Is(err, errPortTaken):
			req.Fail(jsonrpc.Errorf(jsonrpc.CodeFailed, "port %d is already in use", params.Port)) // DEC-28
			return
		case err != nil:
			req.Fail(rpcError(err))
			return
		}
		ready := facade.Ready{Version: f.p.cfg.Version, Port: params.Port}
		req.Reply(ready)
		if moved {
			f.notify(facade.NotifyReady, ready)
		}
	})
}
