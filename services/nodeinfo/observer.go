// SPDX-License-Identifier: Apache-2.0

package nodeinfo

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	observedFor = 5 * time.Minute // NI-24
	maxObserved = 64              // addresses; a machine that answers for a whole prefix could have any number
)

// observer remembers at which addresses of this machine a peer's request arrived:
// evidence of a path, not of an identity.
type observer struct {
	mu   sync.Mutex // guards seen
	seen map[netip.Addr]time.Time
}

func newObserver() *observer { return &observer{seen: map[netip.Addr]time.Time{}} }

// see notes a connection on which a request is being read (NI-23).
func (o *observer) see(conn net.Conn) {
	local, remote := addrOf(conn.LocalAddr()), addrOf(conn.RemoteAddr())
	if !remote.IsValid() || remote.IsLoopback() || !local.IsValid() || local.IsLoopback() || local.IsUnspecified() {
		return
	}
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.seen[local]; !known && len(o.seen) >= maxObserved {
		o.expireLocked(now)
		if len(o.seen) >= maxObserved {
			return
		}
	}
	o.seen[local] = now
}

// addresses returns those seen lately, sorted, never nil.
func (o *observer) addresses() []string {
	o.mu.Lock()
	o.expireLocked(time.Now())
	seen := slices.Collect(maps.Keys(o.seen))
	o.mu.Unlock()
	list := make([]string, 0, len(seen))
	for _, a := range seen {
		list = append(list, a.String())
	}
	slices.Sort(list)
	return list
}

func (o *observer) expireLocked(now time.Time) {
	maps.DeleteFunc(o.seen, func(_ netip.Addr, at time.Time) bool { return now.Sub(at) > observedFor })
}

// addrOf is the address of a TCP endpoint, without a zone: that means something
// on this machine only.
func addrOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}
