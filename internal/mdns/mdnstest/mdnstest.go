// SPDX-License-Identifier: Apache-2.0

// Package mdnstest is a network in memory for tests of programs that use package
// mdns. Nothing in it depends on real time or real sockets, so that it works in
// bubbles of testing/synctest.
//
// A packet reaches every host that has an interface in the sender's segment and
// has joined the group there, its sender included, in no time. Packets to a single
// address reach nobody, as with the real sockets; they are recorded.
package mdnstest

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"nvpair/internal/mdns"
)

// queueLength is how many packets wait for one listener; more are lost, as in a socket.
const queueLength = 256

// errUnreachable is the error of a send through an interface that is not there.
var errUnreachable = errors.New("network is unreachable")

// Network is a set of segments. Its methods and its hosts' may be called by any number of goroutines.
type Network struct {
	mu      sync.Mutex // guards the rest, and all of the hosts; never held over a wait
	hosts   []*Host
	packets []Packet
}

// Packet is one that was sent.
type Packet struct {
	Time    time.Time
	Segment string
	Source  netip.AddrPort
	To      netip.AddrPort
	Data    []byte
}

// New returns a network without hosts.
func New() *Network { return &Network{} }

// Host adds a machine without interfaces.
func (n *Network) Host() *Host {
	h := &Host{net: n}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts = append(n.hosts, h)
	return h
}

// Packets returns what was sent since the last call, in order.
func (n *Network) Packets() []Packet {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := n.packets
	n.packets = nil
	return list
}

// Inject sends a packet into a segment as a host of any kind would: to the group, from any address.
func (n *Network) Inject(segment string, source netip.AddrPort, data []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.deliverLocked(Packet{time.Now(), segment, source, mdns.Group(), slices.Clone(data)})
}

func (n *Network) deliverLocked(p Packet) {
	n.packets = append(n.packets, p)
	if p.To != mdns.Group() {
		return
	}
	for _, h := range n.hosts {
		for _, port := range h.ports {
			if port.segment == p.Segment {
				h.receiveLocked(p, port.Index)
			}
		}
	}
}

// Host is a machine. It is the mdns.Network of the Conns that run on it.
type Host struct {
	net       *Network
	ports     []*port
	listeners []*listener
	last      int // index of the newest interface
	deaf      error
}

type port struct {
	mdns.Interface
	segment string
	err     error
}

// Attach adds an interface, of which addresses are like "192.0.2.1/24", to a segment.
func (h *Host) Attach(name, segment string, addresses ...string) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.last++
	p := &port{Interface: mdns.Interface{Name: name, Index: h.last}, segment: segment}
	for _, address := range addresses {
		p.Prefixes = append(p.Prefixes, netip.MustParsePrefix(address))
	}
	h.ports = append(h.ports, p)
}

// Detach removes an interface. Whoever joined the group on it must join again on its successor.
func (h *Host) Detach(name string) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.ports = slices.DeleteFunc(h.ports, func(p *port) bool { return p.Name == name })
}

// Break makes sends through an interface fail with err; nil repairs it.
func (h *Host) Break(name string, err error) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	for _, p := range h.ports {
		if p.Name == name {
			p.err = err
		}
	}
}

// Deafen makes open listeners fail with err, and Listen too until it is nil.
func (h *Host) Deafen(err error) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.deaf = err
	for _, l := range h.listeners {
		l.failed = err
		l.closeLocked()
	}
	h.listeners = nil
}

// Interfaces implements mdns.Network.
func (h *Host) Interfaces() ([]mdns.Interface, error) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	var list []mdns.Interface
	for _, p := range h.ports {
		i := p.Interface
		i.Prefixes = slices.Clone(i.Prefixes)
		list = append(list, i)
	}
	return list, nil
}

// Listen implements mdns.Network.
func (h *Host) Listen() (mdns.Listener, error) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if h.deaf != nil {
		return nil, h.deaf
	}
	l := &listener{host: h, joined: map[int]bool{}, queue: make(chan arrival, queueLength), closed: make(chan struct{})}
	h.listeners = append(h.listeners, l)
	return l, nil
}

// Send implements mdns.Network.
func (h *Host) Send(via mdns.Interface, to netip.AddrPort, data []byte) error {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	for _, p := range h.ports {
		if p.Index == via.Index {
			if p.err != nil {
				return p.err
			}
			source := netip.AddrPortFrom(via.SourceFor(to.Addr()), mdns.Port)
			h.net.deliverLocked(Packet{time.Now(), p.segment, source, to, slices.Clone(data)})
			return nil
		}
	}
	return errUnreachable
}

func (h *Host) receiveLocked(p Packet, index int) {
	for _, l := range h.listeners {
		if !l.joined[index] {
			continue
		}
		select {
		case l.queue <- arrival{p, index}:
		default: // lost
		}
	}
}

type arrival struct {
	Packet
	index int
}

type listener struct {
	host   *Host
	queue  chan arrival
	closed chan struct{}

	joined map[int]bool // guarded by host.net.mu, as is failed
	failed error
}

func (l *listener) Join(on mdns.Interface) error {
	l.host.net.mu.Lock()
	defer l.host.net.mu.Unlock()
	l.joined[on.Index] = true
	return nil
}

func (l *listener) Read(b []byte) (int, mdns.Origin, error) {
	select {
	case a := <-l.queue:
		return copy(b, a.Data), mdns.Origin{Source: a.Source, Interface: a.index, Multicast: true}, nil
	case <-l.closed:
		l.host.net.mu.Lock()
		defer l.host.net.mu.Unlock()
		if l.failed != nil {
			return 0, mdns.Origin{}, l.failed
		}
		return 0, mdns.Origin{}, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.host.net.mu.Lock()
	defer l.host.net.mu.Unlock()
	l.closeLocked()
	l.host.listeners = slices.DeleteFunc(l.host.listeners, func(o *listener) bool { return o == l })
	return nil
}

func (l *listener) closeLocked() {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
}
