// SPDX-License-Identifier: Apache-2.0

package nodeinfo

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Connections at a time, on one listener. A source is an address; all of an IPv6
// subnet are one, as a machine has any number of those.
const (
	maxConns     = 2048
	maxPerSource = 1024 // many machines may share an address

	// graceOfConn is how long a connection may take over what takes
	// milliseconds before it is the first to give way.
	graceOfConn = time.Second
)

// gate bounds the connections of a listener. None ever waits: when all places, or
// all of its source, are taken, a new one gets that of another, of the source that
// has most. That is the one that is idle longest; else the one that has been
// connecting, asking or reading longest if that is more than a second; else the
// oldest that has sent nothing; else the oldest. So nobody keeps others out by
// holding connections open, however fast new ones come.
type gate struct {
	net.Listener

	mu      sync.Mutex                 // guards the rest
	conns   map[net.Conn]*list.Element // of a *stay
	sources map[netip.Prefix]*source   // none without connections
}

// source are the connections of one, each kind from the one that has been so longest.
// Among its own no choice takes longer for a larger crowd; the one of a source looks
// at all sources.
type source struct {
	idle, silent, busy list.List
}

func (s *source) len() int { return s.idle.Len() + s.silent.Len() + s.busy.Len() }

// in returns the list for a state.
func (s *source) in(state http.ConnState) *list.List {
	switch state {
	case http.StateIdle:
		return &s.idle
	case http.StateNew:
		return &s.silent
	}
	return &s.busy
}

// stay is a connection and since when it is in its list.
type stay struct {
	conn  net.Conn
	from  netip.Prefix
	list  *list.List
	since time.Time
}

func newGate(ln net.Listener) *gate {
	return &gate{Listener: ln, conns: map[net.Conn]*list.Element{}, sources: map[netip.Prefix]*source{}}
}

// Accept returns the next connection.
func (g *gate) Accept() (net.Conn, error) {
	conn, err := g.Listener.Accept()
	if err == nil {
		g.admit(conn, sourceOf(conn))
	}
	return conn, err
}

// sourceOf is invalid for what is no TCP connection.
func sourceOf(conn net.Conn) netip.Prefix {
	addr, bits := addrOf(conn.RemoteAddr()), 32
	if addr.Is6() {
		bits = 64
	}
	source, _ := addr.Prefix(bits)
	return source
}

// admit takes a connection in; another gives way if there is no room.
func (g *gate) admit(conn net.Conn, from netip.Prefix) {
	now := time.Now()
	g.mu.Lock()
	var out net.Conn
	switch own := g.sources[from]; {
	case own != nil && own.len() >= maxPerSource:
		out = own.dispensable(now)
	case len(g.conns) >= maxConns:
		out = g.largestLocked().dispensable(now)
	}
	if out != nil {
		g.forgetLocked(out)
	}
	g.putLocked(conn, from, http.StateNew, now)
	g.mu.Unlock()
	if out != nil {
		_ = out.Close()
	}
}

func (g *gate) putLocked(conn net.Conn, from netip.Prefix, state http.ConnState, now time.Time) {
	if g.sources[from] == nil {
		g.sources[from] = new(source)
	}
	l := g.sources[from].in(state)
	g.conns[conn] = l.PushBack(&stay{conn, from, l, now})
}

// forgetLocked gives the place of a known connection free and returns its source.
func (g *gate) forgetLocked(conn net.Conn) netip.Prefix {
	e := g.conns[conn]
	s := e.Value.(*stay)
	s.list.Remove(e)
	delete(g.conns, conn)
	if g.sources[s.from].len() == 0 {
		delete(g.sources, s.from)
	}
	return s.from
}

// largestLocked returns the source with most connections.
func (g *gate) largestLocked() *source {
	var largest *source
	for _, s := range g.sources {
		if largest == nil || s.len() > largest.len() {
			largest = s
		}
	}
	return largest
}

// dispensable returns the connection of a source that is to give way.
func (s *source) dispensable(now time.Time) net.Conn {
	if idle := first(&s.idle); idle != nil {
		return idle.conn
	}
	silent, busy := first(&s.silent), first(&s.busy)
	switch {
	case silent == nil:
		return busy.conn
	case busy == nil, now.Sub(busy.since) <= graceOfConn, silent.since.Before(busy.since):
		return silent.conn
	}
	return busy.conn
}

// first returns what has been in a list longest, or nil.
func first(l *list.List) *stay {
	if e := l.Front(); e != nil {
		return e.Value.(*stay)
	}
	return nil
}

// moved notes what the server says of a connection.
func (g *gate) moved(conn net.Conn, state http.ConnState) {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conns[conn] == nil {
		return
	}
	from := g.forgetLocked(conn)
	if state != http.StateClosed && state != http.StateHijacked {
		g.putLocked(conn, from, state, time.Now())
	}
}
