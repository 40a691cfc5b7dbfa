// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"nvpair/internal/httpserve"
	"nvpair/internal/splitlisten"
)

// Server limits (PX-35).
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 90 * time.Second
	maxHeader     = 256 << 10
)

// errPortTaken means that another program holds the port.
var errPortTaken = errors.New("port is taken")

// bind listens on a TCP address; errPortTaken is worth another port.
func bind(addr string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	switch {
	case err != nil && isTaken(err):
		return nil, fmt.Errorf("%w: %w", errPortTaken, err)
	case err != nil:
		return nil, fmt.Errorf("bind: %w", err)
	}
	return ln, nil
}

// listen binds the port on all interfaces and starts to serve.
func (f *facadeServer) listen(port int) error {
	ln, err := bind(":" + strconv.Itoa(port))
	if err != nil {
		return err
	}
	split, server := splitlisten.New(ln), f.newServer()
	f.p.here.add(":" + strconv.Itoa(port))
	f.state.mu.Lock()
	f.state.port, f.state.server, f.state.split = port, server, split
	f.rebuildLocked()
	f.state.mu.Unlock()
	f.p.serving.Go(func() {
		if err := split.Serve(); err != nil {
			f.log.Error("listener failed", "port", port, "err", err)
		}
	})
	f.p.serving.Go(func() { f.serveIngress(split.TLS()) })
	f.p.serving.Go(func() { _ = server.Serve(split.Plain()) }) // returns when it is shut down
	return nil
}

// newServer returns the plaintext side's server.
func (f *facadeServer) newServer() *httpserve.Server {
	return &httpserve.Server{
		Handler:           f,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		Log:               f.log,
		BaseContext:       f.p.ctx, // its end is every request's
	}
}

// move binds a new port, keeps it for the next start and lets the old listener's
// requests drain (PX-20). When it fails the old listener serves on. moved is false
// for the port it has already.
func (f *facadeServer) move(port int) (moved bool, err error) {
	f.moving.Lock()
	defer f.moving.Unlock()
	f.state.mu.Lock()
	old, oldPort := f.state.server, f.state.port
	f.state.mu.Unlock()
	if port != oldPort {
		if err := f.listen(port); err != nil {
			return false, err
		}
	}
	if err := f.savePort(port); err != nil {
		f.log.Warn("facade port is not kept for the next start", "port", port, "err", err)
	}
	if port == oldPort {
		return false, nil
	}
	f.p.here.remove(":" + strconv.Itoa(oldPort))
	f.p.serving.Go(func() {
		if old.Shutdown(f.p.ctx) != nil { // running requests may take as long as they need
			f.shutdown(old)
		}
	})
	return true, nil
}

func (f *facadeServer) close() {
	f.state.mu.Lock()
	servers, split := append([]*httpserve.Server{f.state.server}, f.state.aliases...), f.state.split
	f.state.mu.Unlock()
	for _, server := range servers {
		f.shutdown(server)
	}
	_ = split.Close()
}

// shutdown lets running requests end, for a while.
func (f *facadeServer) shutdown(s *httpserve.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), f.p.cfg.limits.drainTimeout)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		_ = s.Close()
	}
}
