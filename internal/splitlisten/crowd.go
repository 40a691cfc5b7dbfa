// SPDX-License-Identifier: Apache-2.0

package splitlisten

import (
	"container/list"
	"context"
	"net"
	"net/netip"
	"sync"
)

// Connections at a time that have not been taken by their server, on one listener.
// A source is an address; all of an IPv6 subnet are one, as a machine has any number
// of those. Loopback has places of its own, which no other machine can take.
const (
	maxStrangers = 4096
	maxPerSource = 1024 // many machines may share an address
	maxLocal     = 2048
)

// crowd bounds connections that wait. None ever waits for a place: when all, or all
// of its source, are taken, a new one gets that of the one that has waited longest.
// So a flood leaves everybody the time in which it can fill all places anew, and no
// choice takes longer for a larger crowd.
type crowd struct {
	max, perSource int

	mu      sync.Mutex                  // guards the rest
	all     list.List                   // of *guest, from the one that has waited longest
	sources map[netip.Prefix]*list.List // the same for each source; none is empty
}

// guest is a connection in a crowd.
type guest struct {
	leave context.CancelFunc // tells it to give way
	from  netip.Prefix

	// The rest is guarded by the crowd's lock.

	inAll, inSource *list.Element // nil when it has left
}

func newCrowd(most, perSource int) *crowd {
	return &crowd{max: most, perSource: perSource, sources: map[netip.Prefix]*list.List{}}
}

// add takes a guest in; another gives way if there is no room.
func (c *crowd) add(g *guest) {
	c.mu.Lock()
	var out *guest
	switch own := c.sources[g.from]; {
	case own != nil && own.Len() >= c.perSource:
		out = own.Front().Value.(*guest)
	case c.all.Len() >= c.max:
		out = c.all.Front().Value.(*guest)
	}
	if out != nil {
		c.removeLocked(out)
	}
	own := c.sources[g.from]
	if own == nil {
		own = list.New()
		c.sources[g.from] = own
	}
	g.inAll, g.inSource = c.all.PushBack(g), own.PushBack(g)
	c.mu.Unlock()
	if out != nil {
		out.leave()
	}
}

// renew lets a guest wait as if it had just come.
func (c *crowd) renew(g *guest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.inAll != nil {
		c.all.MoveToBack(g.inAll)
		c.sources[g.from].MoveToBack(g.inSource)
	}
}

// remove gives the place of a guest free, if it has not given way already.
func (c *crowd) remove(g *guest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.inAll != nil {
		c.removeLocked(g)
	}
}

func (c *crowd) removeLocked(g *guest) {
	own := c.sources[g.from]
	c.all.Remove(g.inAll)
	own.Remove(g.inSource)
	if own.Len() == 0 {
		delete(c.sources, g.from)
	}
	g.inAll, g.inSource = nil, nil
}

// sourceOf returns where a connection comes from, and whether that is this machine.
// What is no TCP connection comes from the invalid prefix.
func sourceOf(conn net.Conn) (from netip.Prefix, local bool) {
	tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}, false
	}
	addr, bits := tcp.AddrPort().Addr().Unmap(), 32
	if addr.IsLoopback() {
		return netip.Prefix{}, true // all its addresses are one source
	}
	if addr.Is6() {
		bits = 64
	}
	from, _ = addr.Prefix(bits)
	return from, false
}
