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

// candidate is an address that this machine could publish.
type candidate struct {
	addr    netip.Addr
	virtual bool // its interface leads to containers, virtual machines or tunnels
}

// localAddresses returns the addresses of this machine that are worth
// publishing, best first. They are ranked by what they are; what the network
// tells about them (DI-21) is not known yet.
func localAddresses() ([]string, error) {
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
				all = append(all, candidate{prefix.Addr().Unmap(), isVirtual(i.Name)})
			}
		}
	}
	return rank(all), nil
}

// rank drops what is never published (DI-20) and sorts the rest: addresses of
// physical interfaces, then private ones, then by the address as a string, so
// that the order of the interfaces does not matter (DI-23, DI-24).
func rank(all []candidate) []string {
	all = slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return !publishable(c.addr) })
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(
			cmp.Compare(order(a.virtual), order(b.virtual)),
			cmp.Compare(class(a.addr), class(b.addr)),
			strings.Compare(a.addr.String(), b.addr.String()),
		)
	})
	var ips []string
	for _, c := range all {
		if ip := c.addr.String(); len(ips) < maxAddresses && !slices.Contains(ips, ip) {
			ips = append(ips, ip)
		}
	}
	return ips
}

func order(later bool) int {
	if later {
		return 1
	}
	return 0
}

// publishable leaves out Docker's default bridge, which is on every other
// machine too.
func publishable(a netip.Addr) bool {
	docker := netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 17, 0, 0}), 16)
	return a.Is4() && a.IsGlobalUnicast() && !docker.Contains(a)
}

// class is lower for what more peers can reach: RFC 1918, public, shared (CGNAT).
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
