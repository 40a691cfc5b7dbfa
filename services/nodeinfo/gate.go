// SPDX-License-Identifier: Apache-2.0

package nodeinfo

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	maxConns = 256 // at a time, on one listener

	// graceOfConn is how long a connection may take over what takes
	// milliseconds before it may have to give way.
	graceOfConn = time.Second
)

// gate bounds the connections of a listener. When it is full, the next one takes
// the place of the one that has been idle longest, or else of one that has been
// connecting, asking or reading for more than a second; while there is neither,
// it waits in the system's backlog. So nobody keeps others out by holding
// connections open.
type gate struct {
	net.Listener
	free chan struct{} // capacity 1: a mark that something changed; only Accept waits for it
	done chan struct{} // closed by Close
	once sync.Once

	mu    sync.Mutex // guards conns
	conns map[net.Conn]stay
}

// stay is what a connection does, and since when.
type stay struct {
	state http.ConnState
	since time.Time
}

func newGate(ln net.Listener) *gate {
	return &gate{Listener: ln, free: make(chan struct{}, 1), done: make(chan struct{}), conns: map[net.Conn]stay{}}
}

// Accept returns the next connection once there is room for it.
func (g *gate) Accept() (net.Conn, error) {
	conn, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	for !g.admit(conn) {
		timer := time.NewTimer(graceOfConn / 4) // one of them may be slow by then
		select {
		case <-g.free:
		case <-timer.C:
		case <-g.done:
			timer.Stop()
			_ = conn.Close()
			return nil, net.ErrClosed
		}
		timer.Stop()
	}
	return conn, nil
}

// admit takes a connection in if there is room or another gives way.
func (g *gate) admit(conn net.Conn) bool {
	now := time.Now()
	g.mu.Lock()
	var out net.Conn
	if len(g.conns) >= maxConns {
		if out = g.dispensableLocked(now); out == nil {
			g.mu.Unlock()
			return false
		}
		delete(g.conns, out)
	}
	g.conns[conn] = stay{http.StateNew, now}
	g.mu.Unlock()
	if out != nil {
		_ = out.Close()
	}
	return true
}

// dispensableLocked returns the connection that is idle longest, else the one
// that is longest overdue, or nil.
func (g *gate) dispensableLocked(now time.Time) net.Conn {
	var idle, overdue net.Conn
	for conn, s := range g.conns {
		switch {
		case s.state == http.StateIdle:
			if idle == nil || s.since.Before(g.conns[idle].since) {
				idle = conn
			}
		case now.Sub(s.since) > graceOfConn:
			if overdue == nil || s.since.Before(g.conns[overdue].since) {
				overdue = conn
			}
		}
	}
	if idle != nil {
		return idle
	}
	return overdue
}

// moved notes what the server says of a connection.
func (g *gate) moved(conn net.Conn, state http.ConnState) {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	g.mu.Lock()
	if _, known := g.conns[conn]; known {
		if state == http.StateClosed || state == http.StateHijacked {
			delete(g.conns, conn)
		} else {
			g.conns[conn] = stay{state, time.Now()}
		}
	}
	g.mu.Unlock()
	if state == http.StateIdle || state == http.StateClosed {
		select {
		case g.free <- struct{}{}:
		default:
		}
	}
}

// Close ends Accept.
func (g *gate) Close() error {
	g.once.Do(func() { close(g.done) })
	return g.Listener.Close()
}
