// SPDX-License-Identifier: Apache-2.0

package mdns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/net/ipv4"
)

// Port is the UDP port of multicast DNS.
const Port = 5353

const (
	multicastTTL = 255 // RFC 6762 section 11

	// sendWithin bounds the wait of a send for room in the socket's buffer.
	sendWithin = time.Second
)

// Interface is a network interface that can be spoken on.
type Interface struct {
	Name     string
	Index    int            // from 1
	Prefixes []netip.Prefix // its IPv4 addresses, each with the length of its subnet; never empty
}

func (i Interface) equal(o Interface) bool {
	return i.Name == o.Name && i.Index == o.Index && slices.Equal(i.Prefixes, o.Prefixes)
}

// addrs returns the addresses alone.
func (i Interface) addrs() []netip.Addr {
	list := make([]netip.Addr, len(i.Prefixes))
	for n, prefix := range i.Prefixes {
		list[n] = prefix.Addr()
	}
	return list
}

// holds reports whether addr is on one of the interface's subnets.
func (i Interface) holds(addr netip.Addr) bool {
	return slices.ContainsFunc(i.Prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// SourceFor returns the address of the interface from which packets to addr are
// sent: that on the same subnet, else the first.
func (i Interface) SourceFor(addr netip.Addr) netip.Addr {
	for _, prefix := range i.Prefixes {
		if prefix.Contains(addr) {
			return prefix.Addr()
		}
	}
	return i.Prefixes[0].Addr()
}

// Group returns where multicast DNS is sent to: 224.0.0.251:5353.
func Group() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{224, 0, 0, 251}), Port)
}

// Network is what a Conn speaks through. System is the machine's; package mdnstest
// has one in memory. All methods may be called concurrently.
type Network interface {
	// Interfaces lists the usable ones, ordered by index.
	Interfaces() ([]Interface, error)
	// Listen opens a receiving socket that has joined no group yet.
	Listen() (Listener, error)
	// Send sends one packet from an interface's own address and port 5353, to
	// the group through that interface or to a single host.
	Send(via Interface, to netip.AddrPort, packet []byte) error
}

// Listener is a receiving socket. Read belongs to one goroutine.
type Listener interface {
	// Join joins the group on an interface. Doing so again is no error.
	Join(on Interface) error
	// Read waits for a packet. One that is larger than b fills it.
	Read(b []byte) (int, Origin, error)
	// Close ends a Read that waits.
	Close() error
}

// Origin says where a received packet came from.
type Origin struct {
	Source    netip.AddrPort
	Interface int  // index of the receiving one; 0 if unknown, and with it where the packet was sent to
	Multicast bool // known to have been sent to the group
}

// direct reports whether a packet is known to have been sent to this host alone.
func (o Origin) direct() bool { return o.Interface != 0 && !o.Multicast }

// System returns the machine's own network.
func System() Network { return system{} }

type system struct{}

func (system) Interfaces() ([]Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var list []Interface
	for _, ifi := range all {
		const needed = net.FlagUp | net.FlagMulticast
		if ifi.Flags&needed != needed || ifi.Flags&net.FlagLoopback != 0 {
			continue
		}
		addrs, err := ifi.Addrs()
		if err != nil {
			continue // it vanished
		}
		if prefixes := usable(addrs); len(prefixes) > 0 {
			list = append(list, Interface{Name: ifi.Name, Index: ifi.Index, Prefixes: prefixes})
		}
	}
	slices.SortFunc(list, func(a, b Interface) int { return a.Index - b.Index })
	return list, nil
}

// usable returns the IPv4 addresses that are no loopback, in their order.
func usable(addrs []net.Addr) []netip.Prefix {
	var list []netip.Prefix
	for _, addr := range addrs {
		ipNet, ok := addr.(*net.IPNet)
		if !ok {
			continue
		}
		ip, ok := netip.AddrFromSlice(ipNet.IP)
		ones, bits := ipNet.Mask.Size()
		if ip = ip.Unmap(); !ok || !ip.Is4() || ip.IsLoopback() || ip.IsUnspecified() || bits == 0 {
			continue
		}
		list = append(list, netip.PrefixFrom(ip, ones-(bits-32)))
	}
	return list
}

func (system) Listen() (Listener, error) {
	conn, err := listenGroup()
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", Group(), err)
	}
	l := &listener{conn: conn, packets: ipv4.NewPacketConn(conn)}
	// Windows has none; interface and destination are then unknown.
	_ = l.packets.SetControlMessage(ipv4.FlagInterface|ipv4.FlagDst, true)
	return l, nil
}

// Send uses a socket for this packet alone. One that is kept would take unicast
// packets from the machine's other responders, and one that is bound to the group
// sends nothing on Windows (DI-42).
func (system) Send(via Interface, to netip.AddrPort, packet []byte) (err error) {
	config := net.ListenConfig{Control: controlReuse}
	local := netip.AddrPortFrom(via.SourceFor(to.Addr()), Port)
	conn, err := config.ListenPacket(context.Background(), "udp4", local.String()) // resolves nothing, so does not wait
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	p := ipv4.NewPacketConn(conn)
	if to.Addr().IsMulticast() {
		err = errors.Join(p.SetMulticastInterface(&net.Interface{Index: via.Index, Name: via.Name}),
			p.SetMulticastTTL(multicastTTL), p.SetMulticastLoopback(true))
	} else {
		err = p.SetTTL(multicastTTL)
	}
	if err == nil {
		err = conn.SetWriteDeadline(time.Now().Add(sendWithin))
	}
	if err == nil {
		_, err = conn.WriteTo(packet, net.UDPAddrFromAddrPort(to))
	}
	return err
}

type listener struct {
	conn    net.PacketConn
	packets *ipv4.PacketConn
}

func (l *listener) Join(on Interface) error {
	group := &net.UDPAddr{IP: Group().Addr().AsSlice()}
	err := l.packets.JoinGroup(&net.Interface{Index: on.Index, Name: on.Name}, group)
	if alreadyJoined(err) {
		return nil
	}
	return err
}

func (l *listener) Read(b []byte) (int, Origin, error) {
	n, cm, from, err := l.packets.ReadFrom(b)
	if err != nil {
		return 0, Origin{}, err
	}
	var o Origin
	if udp, ok := from.(*net.UDPAddr); ok {
		source := udp.AddrPort()
		o.Source = netip.AddrPortFrom(source.Addr().Unmap(), source.Port())
	}
	if cm != nil {
		o.Interface = cm.IfIndex
		o.Multicast = cm.Dst.IsMulticast()
	}
	return n, o, nil
}

func (l *listener) Close() error { return l.conn.Close() }
