// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"encoding/json"
	"fmt"

	"nvpair/internal/jsonrpc"
	"nvpair/shared/discovery"
	"nvpair/shared/facade"
	"nvpair/shared/serviceerror"
)

// setNodes takes a new directory (PX-30, PX-32).
func (f *facadeServer) setNodes(req *jsonrpc.Request) {
	var d discovery.Directory
	if err := json.Unmarshal(req.Params, &d); err != nil {
		f.log.Warn("undecodable directory ignored", "err", err)
		return
	}
	f.state.mu.Lock()
	before := f.state.overlay.relay // replaced, not changed
	added, updated, removed := f.state.overlay.replaceRelay(f.engine, d.Nodes)
	unpinned := f.unpinLocked()
	f.rebuildLocked()
	f.state.mu.Unlock()
	for _, n := range added {
		f.notify(facade.NotifyNodeDiscovered, n)
		f.notify(serviceerror.MethodClear, serviceerror.Clear{ID: f.unreachableID(n.ID)})
	}
	for _, n := range updated {
		f.notify(facade.NotifyNodeUpdated, n)
	}
	for _, n := range removed {
		f.notify(facade.NotifyNodeRemoved, n)
		if before[n.ID].Trusted { // no request ever went to another
			f.reportUnreachable(n)
		}
	}
	f.tellUnpinned(unpinned)
}

func (f *facadeServer) unreachableID(node string) string {
	return f.engine.Proxy() + ":upstream-unreachable:" + node
}

// reportUnreachable says that a node that served this engine is gone (PX-32).
func (f *facadeServer) reportUnreachable(n facade.Node) {
	f.notify(serviceerror.MethodReport, serviceerror.ServiceError{
		ID: f.unreachableID(n.ID), EngineType: f.engine.ID,
		Message:  fmt.Sprintf("node %s no longer offers %s", cmp.Or(n.Host, n.ID), f.engine.DisplayName),
		Severity: serviceerror.SeverityWarning, Action: serviceerror.ActionNone,
	})
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
	nodes := f.state.overlay.list(f.engine)
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

// Bounds of the nodes given by address (DEC-116).
const (
	maxManualNodes   = 512
	maxNodeAddresses = 8
)

func (f *facadeServer) addManual(req *jsonrpc.Request) {
	var n facade.Node
	if !decode(req, &n) {
		return
	}
	if n.ID == "" || n.Port <= 0 || n.Port > 65535 || len(n.Addresses) == 0 {
		req.Fail(jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "id, port, and at least one address are required"))
		return
	}
	if len(n.Addresses) > maxNodeAddresses {
		req.Fail(jsonrpc.InvalidParams("more than %d addresses", maxNodeAddresses))
		return
	}
	f.state.mu.Lock()
	_, known := f.state.overlay.manual[n.ID]
	full := !known && len(f.state.overlay.manual) >= maxManualNodes
	if !full {
		f.state.overlay.manual[n.ID] = n
		f.rebuildLocked()
	}
	f.state.mu.Unlock()
	if full {
		req.Fail(jsonrpc.InvalidParams("more than %d nodes", maxManualNodes))
		return
	}
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
