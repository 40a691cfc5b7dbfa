// SPDX-License-Identifier: Apache-2.0

package mdns

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
)

func TestAPacketBelongsToTheLinkItArrivedOn(t *testing.T) {
	r := newRun(New(Config{}))
	for i, prefix := range []string{"192.0.2.1/24", "198.51.100.1/24"} {
		r.links = append(r.links, newLink(Interface{Index: i + 1, Prefixes: []netip.Prefix{netip.MustParsePrefix(prefix)}}))
	}
	for _, tt := range []struct {
		name      string
		source    string
		index     int
		multicast bool
		want      int // index of the link, 0 for none
	}{
		{"to the group", "192.0.2.7", 1, true, 1},
		{"to the group from another subnet", "203.0.113.7", 1, true, 1},
		{"to the group from the other link's subnet", "192.0.2.7", 2, true, 2},
		{"to the host", "192.0.2.7", 1, false, 1},
		{"to the host from another subnet", "203.0.113.7", 1, false, 0},
		{"on an interface that is not used", "192.0.2.7", 3, true, 0},
		{"on an unknown interface", "198.51.100.7", 0, false, 2},
		{"on an unknown interface from an unknown subnet", "203.0.113.7", 0, false, 0},
	} {
		got := 0
		l := r.linkOf(Origin{Source: netip.AddrPortFrom(netip.MustParseAddr(tt.source), Port), Interface: tt.index,
			Multicast: tt.multicast})
		if l != nil {
			got = l.Index
		}
		if got != tt.want {
			t.Errorf("%s: link %d; want %d", tt.name, got, tt.want)
		}
	}
}

func TestAQuestionToThisHostAloneIsNoneForAll(t *testing.T) {
	b, err := query("_x._tcp.local.", dns.TypePTR).Pack()
	require.NoError(t, err)
	for _, tt := range []struct {
		name      string
		index     int
		multicast bool
		want      bool
	}{
		{"to the group", 1, true, true},
		{"to this host", 1, false, false},
		{"where the system does not tell", 0, false, true},
	} {
		r := newRun(New(Config{}))
		l := newLink(Interface{Index: 1, Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}})
		r.links = []*link{l}
		r.browsers = []*Browser{{serviceType: "_x._tcp.local."}}
		now := time.Now()
		r.handle(b, Origin{Source: netip.MustParseAddrPort("192.0.2.7:5353"), Interface: tt.index, Multicast: tt.multicast}, now)
		if got := l.askedByAnother("_x._tcp.local.", now); got != tt.want {
			t.Errorf("%s: counts as asked by another: %v; want %v", tt.name, got, tt.want)
		}
	}
}

func TestOnlyIPv4AddressesOfTheNetworkCount(t *testing.T) {
	parse := func(cidr string) net.Addr {
		ip, subnet, err := net.ParseCIDR(cidr)
		require.NoError(t, err)
		return &net.IPNet{IP: ip, Mask: subnet.Mask}
	}
	got := usable([]net.Addr{parse("127.0.0.1/8"), parse("fe80::1/64"), parse("2001:db8::1/64"), parse("192.0.2.1/24"),
		parse("169.254.1.2/16"), parse("10.0.0.1/32"), parse("0.0.0.0/0"), &net.IPAddr{IP: net.IPv4(192, 0, 2, 2)}})
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("169.254.1.2/16"),
		netip.MustParsePrefix("10.0.0.1/32")}, got)
}

func TestPacketsLeaveFromTheAddressOnTheReceiversSubnet(t *testing.T) {
	i := Interface{Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("198.51.100.1/24")}}
	for to, want := range map[string]string{"224.0.0.251": "192.0.2.1", "198.51.100.7": "198.51.100.1", "203.0.113.7": "192.0.2.1"} {
		require.Equal(t, want, i.SourceFor(netip.MustParseAddr(to)).String())
	}
}
