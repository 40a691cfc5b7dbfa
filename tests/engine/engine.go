// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Engine is a running demo engine. Its methods may be called concurrently.
type Engine struct {
	// Faults are what the engine does wrong, now.
	Faults *Faults

	cfg     Config
	dialect dialect
	addr    net.Addr
	witness *witness
	models  *models
	slots   *slots
	pace    atomic.Pointer[Pace]
	lists   atomic.Int64 // model lists asked for, for the fault that changes them
	slow    atomic.Bool  // a loading engine answers 503 to everything
	closing chan struct{}
	unhook  func() bool    // ends the tie to Start's context
	wg      sync.WaitGroup // the accept loop and all connections

	mu       sync.Mutex // guards what follows; only memory, and closing sockets
	closed   bool
	open     net.Listener // nil while refusing
	paused   chan struct{}
	conns    map[*conn]struct{}
	nextConn int64
}

// Start starts an engine, which runs until Close, or until ctx ends.
func Start(ctx context.Context, cfg Config) (*Engine, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	ln := cfg.Listener
	if ln == nil {
		if ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return nil, fmt.Errorf("listen: %w", err)
		}
	}
	e := &Engine{
		cfg:     cfg,
		addr:    ln.Addr(),
		witness: newWitness(cfg.Witness),
		models:  newModels(cfg),
		slots:   newSlots(cfg.Slots, cfg.QueueLimit),
		closing: make(chan struct{}),
		open:    ln,
		conns:   map[*conn]struct{}{},
	}
	e.Faults = &Faults{}
	e.dialect = newDialect(e)
	e.pace.Store(&cfg.Pace)
	e.wg.Go(func() { e.accept(ln) })
	e.unhook = context.AfterFunc(ctx, e.stop)
	return e, nil
}

// TB is what StartTest needs of a *testing.T.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// StartTest starts an engine that ends with the test.
func StartTest(t TB, cfg Config) *Engine {
	t.Helper()
	e, err := Start(context.Background(), cfg)
	if err != nil {
		t.Fatalf("start demo engine: %v", err)
	}
	t.Cleanup(e.Close)
	return e
}

// Addr returns the host and port the engine listens on.
func (e *Engine) Addr() string { return e.addr.String() }

// URL returns the engine's address as a URL without a slash at its end.
func (e *Engine) URL() string { return "http://" + e.Addr() }

// Pace returns how answers are generated.
func (e *Engine) Pace() Pace { return *e.pace.Load() }

// SetPace changes how the answers of later requests are generated.
func (e *Engine) SetPace(p Pace) { e.pace.Store(&p) }

// SetModels replaces all models, and with them what is loaded.
func (e *Engine) SetModels(list []Model) { e.models.replace(list) }

// SetLoading makes the engine say of itself that it is still loading: 503 to
// every request, as llama.cpp does.
func (e *Engine) SetLoading(on bool) { e.slow.Store(on) }

// Witness returns what the engine saw, up to now.
func (e *Engine) Witness() Report { return e.witness.report() }

// ResetWitness forgets all requests that have ended and counts anew.
func (e *Engine) ResetWitness() { e.witness.reset() }

// AwaitWitness returns the first report that satisfies ok, or ctx's error.
func (e *Engine) AwaitWitness(ctx context.Context, ok func(Report) bool) (Report, error) {
	return e.witness.await(ctx, ok)
}

// Close ends the engine at once: listener and connections are closed, streams
// are cut. It returns when all of its goroutines have ended.
func (e *Engine) Close() {
	e.unhook()
	e.stop()
	e.wg.Wait()
}

func (e *Engine) stop() {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return
	}
	e.closed = true
	close(e.closing)
	ln := e.open
	e.open = nil
	conns := make([]*conn, 0, len(e.conns))
	for c := range e.conns {
		conns = append(conns, c)
	}
	e.mu.Unlock()
	if ln != nil {
		_ = ln.Close()
	}
	for _, c := range conns {
		_ = c.nc.Close()
	}
}

// accept serves the connections of one listener until that is closed.
func (e *Engine) accept(ln net.Listener) {
	for {
		e.awaitOpen()
		nc, err := ln.Accept()
		if err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				continue
			}
			e.mu.Lock()
			gone := e.open != ln
			e.mu.Unlock()
			if gone {
				return
			}
			select { // out of files, perhaps: not a reason to spin
			case <-time.After(5 * time.Millisecond):
			case <-e.closing:
				return
			}
			continue
		}
		e.awaitOpen() // it may have been paused while this one was accepted
		e.start(nc)
	}
}

// awaitOpen waits while the listener is paused, or until the engine ends.
func (e *Engine) awaitOpen() {
	for {
		e.mu.Lock()
		paused := e.paused
		e.mu.Unlock()
		if paused == nil {
			return
		}
		select {
		case <-paused:
		case <-e.closing:
			return
		}
	}
}

// start serves a new connection in a goroutine of its own.
func (e *Engine) start(nc net.Conn) {
	if f := e.Faults.atConnection(AtAccept); f != nil {
		f.end(nc)
		return
	}
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		_ = nc.Close()
		return
	}
	e.nextConn++
	c := newConn(e, nc, e.nextConn)
	e.conns[c] = struct{}{}
	e.wg.Go(c.serve)
	e.mu.Unlock()
}

func (e *Engine) forget(c *conn) {
	e.mu.Lock()
	delete(e.conns, c)
	e.mu.Unlock()
}
