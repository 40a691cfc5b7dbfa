// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// maxAddresses is how many addresses a node publishes (DI-27).
const maxAddresses = 4

// candidate is an address that this machine could publish, with what is known of
// it (DI-21, DI-22).
type candidate struct {
	addr    netip.Addr
	virtual bool // its interface leads to containers, virtual machines or tunnels
	name    string

	narrow   bool // point to point, or a subnet of four addresses or fewer
	failing  bool // the last questions could not be sent there
	observed bool // a peer has reached this node at it
	onLink   bool // another node's address is on its subnet
	route    bool // it is where packets for other networks leave from
}

// clues is what the network tells about this machine's addresses, all of it in
// passing: nothing is probed for it.
type clues struct {
	failing  map[int]bool    // interfaces by index
	observed map[string]bool // own addresses
	peers    []netip.Addr    // addresses of other nodes
	route    netip.Addr      // invalid if there is none
}

// localCandidates returns all addresses of this machine.
func localCandidates(known clues) ([]candidate, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var all []candidate
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue // it went away meanwhile
		}
		for _, a := range addrs {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				all = append(all, known.about(i, prefix))
			}
		}
	}
	return all, nil
}

// about judges one address.
func (k clues) about(i net.Interface, prefix netip.Prefix) candidate {
	addr := prefix.Addr().Unmap()
	virtual := isVirtual(i.Name)
	return candidate{
		addr: addr, virtual: virtual, name: i.Name,
		narrow:   i.Flags&net.FlagPointToPoint != 0 || addr.Is4() && prefix.Bits() >= 30,
		failing:  k.failing[i.Index],
		observed: k.observed[addr.String()],
		onLink: !virtual && slices.ContainsFunc(k.peers, func(p netip.Addr) bool {
			return prefix.Masked().Contains(p)
		}),
		route: k.route == addr,
	}
}

func (c candidate) qualified() bool { return !c.narrow && !c.failing }

// rank drops what is never published (DI-20) and sorts the rest, the address a
// person would give first (DI-22 to DI-27). Neither list depends on the order of
// the interfaces.
func rank(all []candidate) []string {
	var physical, virtual []candidate
	for _, c := range all {
		switch {
		case !publishable(c.addr):
		case c.virtual:
			virtual = append(virtual, c)
		default:
			physical = append(physical, c)
		}
	}
	slices.SortFunc(physical, stronger)
	slices.SortFunc(virtual, stronger)
	list := append(slices.Clone(virtual), physical...)
	if len(physical) > 0 && physical[0].qualified() {
		list = append(physical, slices.DeleteFunc(virtual, func(c candidate) bool { return !c.observed })...)
	}
	var ips []string
	for _, c := range list {
		if ip := c.addr.String(); len(ips) < maxAddresses && !slices.Contains(ips, ip) {
			ips = append(ips, ip)
		}
	}
	return ips
}

// stronger compares by evidence, then by what the interface and the address are.
func stronger(a, b candidate) int {
	return cmp.Or(
		first(a.qualified(), b.qualified()),
		first(a.observed, b.observed),
		first(a.onLink, b.onLink),
		first(a.route, b.route),
		cmp.Compare(b.bonus(), a.bonus()),
		cmp.Compare(class(a.addr), class(b.addr)),
		strings.Compare(a.addr.String(), b.addr.String()),
	)
}

func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// bonus prefers the interfaces that people plug in (DI-23).
func (c candidate) bonus() int {
	name := strings.ToLower(c.name)
	has := func(part string) bool { return strings.Contains(name, part) }
	switch {
	case c.virtual:
		return 0
	case has("wi-fi"), has("wifi"), has("wlan"), strings.HasPrefix(name, "wl"):
		return 20
	case has("ethernet"), strings.HasPrefix(name, "eth"), strings.HasPrefix(name, "en"):
		return 15
	}
	return 0
}

// publishable leaves out Docker's default bridge, which is on every other
// machine too.
func publishable(a netip.Addr) bool {
	docker := netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 17, 0, 0}), 16)
	return a.Is4() && a.IsGlobalUnicast() && !docker.Contains(a)
}

// class is lower for what more peers can reach (DI-24): RFC 1918, public, shared
// (CGNAT).
func class(a netip.Addr) int {
	shared := netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64, 0, 0}), 10)
	switch {
	case a.IsPrivate():
		return 0
	case shared.Contains(a):
		return 2
	}
	return 1
}

// routeSource is the address from which packets to other networks leave; invalid
// if there is no way out. Nothing is sent.
func routeSource() netip.Addr {
	conn, err := net.Dial("udp4", "192.0.2.1:9") // RFC 5737: nobody's address
	if err != nil {
		return netip.Addr{}
	}
	defer func() { _ = conn.Close() }()
	a, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return a.Addr()
}

// isVirtual goes by what the systems and the usual programs call such
// interfaces (DI-25).
func isVirtual(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{
		"veth", "docker", "br-", "vethernet", "vmnet", "vboxnet", "virbr", "tailscale", "zt", "utun", "wg", "tun", "tap",
		"ppp", "vpn", "hyper-v", "virtual", "wsl", "loopback", "isatap", "teredo", "ovn-", "ovs-", "genev", "vxlan",
		"flannel", "cni", "cali", "cilium", "antrea", "kube",
	}, func(part string) bool { return strings.Contains(name, part) })
}
