// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Server serves HTTP/1.1 on plaintext connections. Its exported fields must not
// change once Serve is called; zero values are usable except for Handler. A
// Server must not be copied, and is of no use after Shutdown or Close.
type Server struct {
	// Handler takes every request, "OPTIONS *" and CONNECT too. It runs on the
	// goroutine of the connection, so one connection has one request at a time.
	Handler http.Handler

	// BaseContext is the parent of every request's context: its end is theirs.
	// nil is context.Background.
	BaseContext context.Context

	// ReadHeaderTimeout bounds the time from a head's first byte to its last,
	// for the first head of a connection from its acceptance. 0 is no limit.
	ReadHeaderTimeout time.Duration

	// IdleTimeout is how long a connection is kept between two requests. It may
	// end a second early. 0 is no limit.
	IdleTimeout time.Duration

	// MaxHeaderBytes bounds a request's head, as in net/http with a tolerance of
	// 4 KiB. 0 is http.DefaultMaxHeaderBytes.
	MaxHeaderBytes int

	// Log gets panics of the handler at ERROR, and its misuse of a
	// ResponseWriter at DEBUG. nil is silence.
	Log *slog.Logger

	buffers  sync.Pool     // of *buffers, lent to connections that have a request
	stopping atomic.Bool   // Shutdown or Close was called
	tick     atomic.Uint64 // counts the looks at running requests
	looking  atomic.Bool   // the next look is due

	// lock order: mu, then inbound.mu
	mu        sync.Mutex // guards the rest
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	empty     chan struct{} // closed when Shutdown waits and conns has become empty
	looker    *time.Timer
}

const (
	// freshGrace is how long Shutdown leaves a connection that sent nothing yet.
	freshGrace = 5 * time.Second

	// Waits for an Accept that fails.
	firstBackoff = 5 * time.Millisecond
	maxBackoff   = time.Second
)

// Serve accepts connections until the listener fails, which it closes then, or
// the server ends; that is http.ErrServerClosed. It does not wait for the
// connections. An error of Accept that passes is waited out.
func (s *Server) Serve(ln net.Listener) error {
	defer func() { _ = ln.Close() }()
	if !s.track(ln) {
		return http.ErrServerClosed
	}
	defer s.untrack(ln)
	defer context.AfterFunc(s.base(), s.cancelRequests)()
	backoff := firstBackoff
	for {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			backoff = firstBackoff
			c := newConn(s, nc)
			if !s.add(c) {
				_ = nc.Close()
				return http.ErrServerClosed
			}
			go c.serve() // Shutdown waits for it, Close ends it
		case s.stopping.Load():
			return http.ErrServerClosed
		case !isTemporary(err):
			return err
		default:
			<-time.After(backoff) // so long is how late Shutdown may find Serve
			backoff = min(2*backoff, maxBackoff)
		}
	}
}

// isTemporary reports whether Accept may work again: a connection that was
// aborted before it was accepted, or a lack of descriptors or memory.
func isTemporary(err error) bool {
	return errors.Is(err, syscall.ECONNABORTED) || errors.Is(err, syscall.EMFILE) ||
		errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}

// Shutdown closes listeners and idle connections, then waits until the running
// requests have been answered. A connection that was accepted but has sent
// nothing is given five seconds. Hijacked connections are not waited for. The
// error is ctx's if that ends first; the rest goes on then.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stopping.Store(true)
	s.closeListeners()
	s.closeIdle(stateIdle)
	grace := time.AfterFunc(freshGrace, func() { s.closeIdle(stateFresh) })
	defer grace.Stop()
	s.mu.Lock()
	if s.empty == nil {
		s.empty = make(chan struct{})
		if len(s.conns) == 0 {
			close(s.empty)
		}
	}
	empty := s.empty
	s.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close closes listeners and connections, which ends the contexts of running
// requests. It waits for nothing and leaves hijacked connections alone.
func (s *Server) Close() error {
	s.stopping.Store(true)
	s.closeListeners()
	for _, c := range s.snapshot() {
		_ = c.nc.Close()
		c.left()
	}
	return nil
}

func (s *Server) track(ln net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping.Load() {
		return false
	}
	if s.listeners == nil {
		s.listeners = make(map[net.Listener]struct{})
	}
	s.listeners[ln] = struct{}{}
	return true
}

func (s *Server) untrack(ln net.Listener) {
	s.mu.Lock()
	delete(s.listeners, ln)
	s.mu.Unlock()
}

func (s *Server) closeListeners() {
	s.mu.Lock()
	listeners := s.listeners
	s.listeners = nil
	s.mu.Unlock()
	for ln := range listeners {
		_ = ln.Close()
	}
}

func (s *Server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping.Load() {
		return false
	}
	if s.conns == nil {
		s.conns = make(map[*conn]struct{})
	}
	s.conns[c] = struct{}{}
	return true
}

// forget drops a connection that has ended or was taken over.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.conns[c]; !known {
		return
	}
	delete(s.conns, c)
	if len(s.conns) == 0 && s.empty != nil {
		close(s.empty) // once: nothing is added while the server is stopping
	}
}

// closeIdle closes the connections in one of the states between requests.
func (s *Server) closeIdle(state int32) {
	for _, c := range s.snapshot() {
		if c.state.CompareAndSwap(state, stateClosed) {
			_ = c.nc.Close()
		}
	}
}

func (s *Server) snapshot() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		list = append(list, c)
	}
	return list
}

// cancelRequests ends the contexts of all running requests.
func (s *Server) cancelRequests() {
	for _, c := range s.snapshot() {
		c.left()
	}
}

func (s *Server) base() context.Context {
	if s.BaseContext == nil {
		return context.Background()
	}
	return s.BaseContext
}

func (s *Server) maxHeader() int64 {
	if s.MaxHeaderBytes > 0 {
		return int64(s.MaxHeaderBytes)
	}
	return http.DefaultMaxHeaderBytes
}

func (s *Server) log() *slog.Logger {
	if s.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.Log
}
