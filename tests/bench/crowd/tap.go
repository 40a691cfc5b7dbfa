// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"nvpair/internal/mdns"
)

const (
	maxPacketBytes = 9001 // one more than a packet may have
	waiting        = 64   // packets for one member; more are lost, as in a socket
	flagResponse   = 1 << 15
	headerBytes    = 12
)

// tap is the one receiving socket of all members. With a socket each, every packet would be read and parsed by all,
// most of them only to be dropped.
type tap struct {
	network  mdns.Network
	internal bool // members hear each other's questions

	mu    sync.Mutex // guards seats
	seats []*seat
}

func newTap(network mdns.Network, internal bool) *tap {
	return &tap{network: network, internal: internal}
}

// seat is the network of one member: it speaks from its own address.
type seat struct {
	tap     *tap
	on      mdns.Interface
	packets chan packet
	closed  chan struct{}
}

type packet struct {
	bytes  []byte // shared by all that read it
	origin mdns.Origin
}

// seat adds a member with the one address that on has.
func (t *tap) seat(on mdns.Interface) *seat {
	s := &seat{tap: t, on: on, packets: make(chan packet, waiting), closed: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seats = append(t.seats, s)
	return s
}

// run hands packets out until ctx ends.
func (t *tap) run(ctx context.Context, on mdns.Interface) error {
	l, err := t.network.Listen()
	if err != nil {
		return err
	}
	stopped := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stopped()
	if err := l.Join(on); err != nil {
		return fmt.Errorf("join the group on %s: %w", on.Name, err)
	}
	buffer := make([]byte, maxPacketBytes)
	for {
		n, origin, err := l.Read(buffer)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		t.hand(packet{slices.Clone(buffer[:n]), origin})
	}
}

// hand gives a packet to all members but its sender. What a member says is for the others only if it is a question
// and they are to hear those.
func (t *tap) hand(p packet) {
	t.mu.Lock()
	defer t.mu.Unlock()
	source := p.origin.Source.Addr()
	ours := slices.ContainsFunc(t.seats, func(s *seat) bool { return s.addr() == source })
	if ours && (!t.internal || !isQuestion(p.bytes)) {
		return
	}
	for _, s := range t.seats {
		if s.addr() == source {
			continue
		}
		select {
		case s.packets <- p:
		default: // lost
		}
	}
}

// isQuestion reports whether a packet is a query and no probe, which is for nobody here: the names differ.
func isQuestion(b []byte) bool {
	return len(b) >= headerBytes && binary.BigEndian.Uint16(b[2:])&flagResponse == 0 && binary.BigEndian.Uint16(b[8:]) == 0
}

func (s *seat) addr() netip.Addr { return s.on.Prefixes[0].Addr() }

// Interfaces implements mdns.Network.
func (s *seat) Interfaces() ([]mdns.Interface, error) { return []mdns.Interface{s.on}, nil }

// Listen implements mdns.Network. It is called once: a listener here does not fail.
func (s *seat) Listen() (mdns.Listener, error) { return s, nil }

// Send implements mdns.Network.
func (s *seat) Send(via mdns.Interface, to netip.AddrPort, b []byte) error {
	return s.tap.network.Send(via, to, b)
}

// Join implements mdns.Listener: the tap has joined.
func (s *seat) Join(mdns.Interface) error { return nil }

// Read implements mdns.Listener.
func (s *seat) Read(b []byte) (int, mdns.Origin, error) {
	select {
	case p := <-s.packets:
		return copy(b, p.bytes), p.origin, nil
	case <-s.closed:
		return 0, mdns.Origin{}, net.ErrClosed
	}
}

// Close implements mdns.Listener.
func (s *seat) Close() error {
	close(s.closed)
	return nil
}
