// SPDX-License-Identifier: Apache-2.0

package mdns

import (
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
)

// overWire returns the records of a response with these answers and additionals, by way of its bytes.
func overWire(t *testing.T, answers, additionals []string) sections {
	t.Helper()
	m := respond()
	for _, list := range []struct {
		from []string
		to   *[]dns.RR
	}{{answers, &m.Answer}, {additionals, &m.Extra}} {
		for _, text := range list.from {
			rr, err := dns.NewRR(text)
			require.NoError(t, err)
			*list.to = append(*list.to, rr)
		}
	}
	b, err := m.Pack()
	require.NoError(t, err)
	p, err := parseHeader(b)
	require.NoError(t, err)
	s, err := p.records()
	require.NoError(t, err)
	return s
}

func TestAPacketIsResolvedByItself(t *testing.T) {
	addrs := func(list ...string) []netip.Addr {
		var got []netip.Addr
		for _, s := range list {
			got = append(got, netip.MustParseAddr(s))
		}
		return got
	}
	whole := Sighting{Instance: "alpha", Host: "alpha.local", Port: 8080, TXT: []string{"v=1", `b=\`},
		Addrs: addrs("192.0.2.1"), TTL: 120 * time.Second}
	for _, tt := range []struct {
		name                 string
		answers, additionals []string
		want                 []Sighting
	}{
		{"an announcement", []string{linePTR, lineSRV, lineTXT, lineA}, nil, []Sighting{whole}},
		{"a reply", []string{linePTR}, []string{lineSRV, lineTXT, lineA}, []Sighting{whole}},
		{"in any order", []string{lineA, lineTXT}, []string{lineSRV, linePTR}, []Sighting{whole}},
		{"without PTR", []string{lineSRV, lineTXT}, []string{lineA}, []Sighting{whole}},
		{"without SRV", []string{linePTR, lineTXT, lineA}, nil, nil},
		{"without address", []string{linePTR, lineSRV, lineTXT}, nil, nil},
		{"another host's address", []string{linePTR, lineSRV, "beta.local. 120 IN A 192.0.2.1"}, nil, nil},
		{"without TXT", []string{linePTR, lineSRV, lineA}, nil, []Sighting{{Instance: "alpha", Host: "alpha.local", Port: 8080,
			Addrs: addrs("192.0.2.1"), TTL: 120 * time.Second}}},
		{"an empty TXT", []string{lineSRV, `alpha._x._tcp.local. 120 IN TXT ""`, lineA}, nil, []Sighting{{Instance: "alpha",
			Host: "alpha.local", Port: 8080, TXT: []string{}, Addrs: addrs("192.0.2.1"), TTL: 120 * time.Second}}},
		{"a goodbye", []string{"_x._tcp.local. 0 IN PTR alpha._x._tcp.local."}, nil,
			[]Sighting{{Instance: "alpha", Goodbye: true}}},
		{"records of no more worth", []string{linePTR, "alpha._x._tcp.local. 0 IN SRV 0 0 8080 alpha.local.", lineA}, nil, nil},
		{"an address of no more worth", []string{linePTR, lineSRV, "alpha.local. 0 IN A 192.0.2.1"}, nil, nil},
		{"IPv6", []string{linePTR, lineSRV, lineTXT, lineA, "ALPHA.local. 120 IN AAAA 2001:db8::1",
			"alpha.local. 120 IN AAAA fe80::1", lineA}, nil, []Sighting{{Instance: "alpha", Host: "alpha.local", Port: 8080,
			TXT: whole.TXT, Addrs: addrs("192.0.2.1", "2001:db8::1"), TTL: 120 * time.Second}}},
		{"link-local IPv6 alone", []string{linePTR, lineSRV, "alpha.local. 120 IN AAAA fe80::1"}, nil, nil},
		{"two of one host, one of another type", []string{linePTR, lineSRV, lineTXT,
			"beta\\ 1._x._tcp.local. 9 IN SRV 0 0 81 alpha.local.", "c._y._tcp.local. 9 IN SRV 0 0 82 alpha.local.", lineA}, nil,
			[]Sighting{whole, {Instance: "beta 1", Host: "alpha.local", Port: 81, Addrs: addrs("192.0.2.1"), TTL: 9 * time.Second}}},
		{"the last record of a kind", []string{"alpha._x._tcp.local. 9 IN SRV 0 0 1 beta.local.", linePTR, lineSRV, lineTXT, lineA},
			nil, []Sighting{whole}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, resolve(overWire(t, tt.answers, tt.additionals), "_x._tcp.local."))
		})
	}
}

func TestOneBadRecordSpoilsNoOther(t *testing.T) {
	m := announcement(alpha(t), twoAddrs[:1])
	bad := &dns.RFC3597{Hdr: dns.RR_Header{Name: "alpha.local.", Rrtype: dns.TypeAAAA, Class: dns.ClassINET, Ttl: 9}, Rdata: "0102"}
	m.Answer = append([]dns.RR{bad}, m.Answer...)
	b, err := m.Pack()
	require.NoError(t, err)
	require.Error(t, new(dns.Msg).Unpack(b), "the library gives up on it")

	p, err := parseHeader(b)
	require.NoError(t, err)
	s, err := p.records()
	require.NoError(t, err)
	require.Len(t, resolve(s, "_x._tcp.local."), 1)
}
