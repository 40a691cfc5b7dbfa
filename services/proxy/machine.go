// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
)

// addressesAge is how long the machine's addresses are taken for the same:
// networks change under a running node.
const addressesAge = 5 * time.Second

// machine knows what is on this machine: its addresses, and where the facades of
// this process listen. The zero value is ready.
type machine struct {
	mu    sync.Mutex          // guards the rest; taken last
	bound map[string]bool     // ":port", or "ip:port" of an alias
	addrs map[netip.Addr]bool // of the interfaces
	read  time.Time           // when addrs were
}

func (m *machine) add(addr string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bound == nil {
		m.bound = make(map[string]bool)
	}
	m.bound[addr] = true
}

func (m *machine) remove(addr string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.bound, addr)
}

// isLocal reports whether the host is this machine.
func (m *machine) isLocal(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.read) > addressesAge {
		m.addrs, m.read = interfaceAddrs(), time.Now()
	}
	return a.Unmap().IsLoopback() || a.IsUnspecified() || m.addrs[a.Unmap()]
}

// listens reports whether one of our own facades would take a connection there
// (PX-51).
func (m *machine) listens(host string, port int) bool {
	if !m.isLocal(host) {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		host = "127.0.0.1"
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bound[":"+strconv.Itoa(port)] || m.bound[net.JoinHostPort(host, strconv.Itoa(port))]
}

func interfaceAddrs() map[netip.Addr]bool {
	own := make(map[netip.Addr]bool)
	list, err := net.InterfaceAddrs()
	if err != nil {
		return own // only loopback is known then
	}
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own[p.Addr().Unmap()] = true
		}
	}
	return own
}
