// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"nvpair/internal/splitlisten"
	"nvpair/services/proxy/route"
	"nvpair/shared/engine"
	"nvpair/shared/facade"
)

// Server limits (PX-35).
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 90 * time.Second
	maxHeader     = 256 << 10
)

// facadeServer is one engine's facade: its listener, its view of the nodes, its
// count of requests.
type facadeServer struct {
	p      *proxy
	engine engine.Engine
	log    *slog.Logger

	index    atomic.Pointer[route.Index] // built by rebuildLocked, read by every request
	pinned   atomic.Pointer[string]      // selected node, nil for automatic
	backend  atomic.Pointer[string]      // own engine's host:port, nil for none
	requests atomic.Int64                // id of the newest request
	asking   sync.Mutex                  // one inventory question at a time; never taken under state.mu
	asked    inquiry                     // guarded by asking: the last question

	state facadeState
}

// facadeState is what changes under the facade's lock.
type facadeState struct {
	engine   engine.Engine
	local    func(host string) bool // is it an address of this machine
	hostUUID string                 // this machine's, "" if the broker did not say

	mu      sync.Mutex // guards the rest; lock order: proxy.mu, then facadeState.mu, then the ledger's
	port    int
	overlay overlay
	server  *http.Server
	split   *splitlisten.Listener
}

func (p *proxy) newFacade(e engine.Engine) *facadeServer {
	f := &facadeServer{p: p, engine: e, log: p.cfg.Log.With("engine", e.ID)}
	f.state.engine = e
	f.state.local = localAddresses()
	f.state.overlay.manual = make(map[string]facade.Node)
	f.index.Store(route.NewIndex(nil, p.currentRanking(), p.ledger))
	return f
}

// errPortTaken means that another program holds the port.
var errPortTaken = errors.New("port is taken")

// listen binds the port on all interfaces and starts to serve.
func (f *facadeServer) listen(port int) error {
	ln, err := net.Listen("tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return fmt.Errorf("%w: %v", errPortTaken, err)
	}
	split := splitlisten.New(ln)
	server := &http.Server{
		Handler:           f,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(f.log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return f.p.ctx }, // its end is every request's

		DisableGeneralOptionsHandler: true, // who asks is checked for "OPTIONS *" too
	}
	f.state.mu.Lock()
	f.state.port, f.state.server, f.state.split = port, server, split
	f.rebuildLocked()
	f.state.mu.Unlock()
	f.p.serving.Go(func() {
		if err := split.Serve(); err != nil {
			f.log.Error("listener failed", "port", port, "err", err)
		}
	})
	f.p.serving.Go(func() { refuseTLS(split.TLS()) })
	f.p.serving.Go(func() { _ = server.Serve(split.Plain()) }) // returns when it is shut down
	return nil
}

// refuseTLS is the peers' side before a cluster exists: nobody is pinned, so every
// handshake is refused. The ingress for peers takes this listener's place.
func refuseTLS(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		_ = conn.Close()
	}
}

// move binds a new port, keeps it for the next start and lets the old listener's
// requests drain (PX-20). When it fails the old listener serves on.
func (f *facadeServer) move(port int) error {
	f.state.mu.Lock()
	old, oldPort := f.state.server, f.state.port
	f.state.mu.Unlock()
	if port != oldPort {
		if err := f.listen(port); err != nil {
			return err
		}
	}
	if err := f.savePort(port); err != nil {
		f.log.Warn("facade port is not kept for the next start", "port", port, "err", err)
	}
	if port != oldPort && old != nil {
		f.p.serving.Go(func() {
			if old.Shutdown(f.p.ctx) != nil { // running requests may take as long as they need
				f.shutdown(old)
			}
		})
	}
	return nil
}

func (f *facadeServer) close() {
	f.state.mu.Lock()
	server, split := f.state.server, f.state.split
	f.state.mu.Unlock()
	if server != nil {
		f.shutdown(server)
		_ = split.Close()
	}
}

// shutdown lets running requests end, for a while.
func (f *facadeServer) shutdown(s *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), f.p.cfg.limits.drainTimeout)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		_ = s.Close()
	}
}

func (f *facadeServer) port() int {
	f.state.mu.Lock()
	defer f.state.mu.Unlock()
	return f.state.port
}

// rebuildLocked makes the routing table anew from the state it is called under.
func (f *facadeServer) rebuildLocked() {
	f.index.Store(route.NewIndex(f.state.routable(), f.p.currentRanking(), f.p.ledger))
	f.pinned.Store(orNil(f.state.overlay.pin))
	f.backend.Store(orNil(f.state.overlay.backend))
}

// orNil returns a copy, nil for the empty string.
func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (f *facadeServer) rebuild() {
	f.state.mu.Lock()
	defer f.state.mu.Unlock()
	f.rebuildLocked()
}
