// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"nvpair/internal/httpserve"
	"nvpair/internal/splitlisten"
	"nvpair/services/proxy/route"
	"nvpair/shared/engine"
	"nvpair/shared/facade"
)

// facadeServer is one engine's facade: its listener, its view of the nodes, its
// count of requests.
type facadeServer struct {
	p      *proxy
	engine engine.Engine
	log    *slog.Logger

	index    atomic.Pointer[route.Index] // built by rebuildLocked, read by every request
	pinned   atomic.Pointer[string]      // selected node, nil for automatic
	own      atomic.Bool                 // there is an own engine
	requests atomic.Int64                // id of the newest request
	vigil    vigil

	moving sync.Mutex         // one change of port at a time; never taken under state.mu
	asking sync.Mutex         // one inventory question at a time; never taken under state.mu
	asked  map[string]inquiry // guarded by asking: the last question to each own engine

	state facadeState
}

// facadeState is what changes under the facade's lock.
type facadeState struct {
	engine   engine.Engine
	here     *machine
	hostUUID string // this machine's, "" if the broker did not say

	mu      sync.Mutex // guards the rest; lock order: proxy.mu, then facadeState.mu, then the ledger's
	port    int
	overlay overlay
	server  *httpserve.Server
	aliases []*httpserve.Server // of the alias addresses
	aliased []string            // those addresses
	split   *splitlisten.Listener
}

func (p *proxy) newFacade(e engine.Engine) *facadeServer {
	f := &facadeServer{p: p, engine: e, log: p.cfg.Log.With("engine", e.ID)}
	f.state.engine = e
	f.state.here = &p.here
	f.state.overlay.manual = make(map[string]facade.Node)
	f.vigil = vigil{
		ctx: p.ctx, serving: &p.serving, log: f.log, pools: &p.targets,
		every: p.cfg.limits.probeEvery, nodes: make(map[string]*watched),
	}
	f.index.Store(route.NewIndex(nil, p.currentRanking(), p.ledger))
	return f
}

// rebuildLocked makes the routing table anew from the state it is called under,
// and ends the requests that wait at nodes that are no longer in it.
func (f *facadeServer) rebuildLocked() {
	before, now := f.index.Load(), route.NewIndex(f.state.routable(), f.p.currentRanking(), f.p.ledger)
	f.index.Store(now)
	f.pinned.Store(orNil(f.state.overlay.pin))
	f.own.Store(len(f.state.overlay.backends) > 0)
	before.Others(func(n *route.Node) { // an own engine that works need not answer the broker
		if !now.Dials(n.Addrs[0]) {
			f.vigil.removed(n)
		}
	})
}

// orNil returns a copy, nil for the empty string.
func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
