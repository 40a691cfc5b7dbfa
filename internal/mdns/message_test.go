// SPDX-License-Identifier: Apache-2.0

package mdns

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
)

// alpha is the service that most tests publish.
func alpha(t testing.TB) *records {
	t.Helper()
	r, err := newRecords(Service{Instance: "alpha", Type: "_x._tcp", Port: 8080, TXT: []string{"v=1", `b=\`}})
	require.NoError(t, err)
	return r
}

var twoAddrs = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.9")}

// wire removes the blanks of a dump.
func wire(dump string) string { return strings.ReplaceAll(dump, " ", "") }

func TestPacketsAreTheseBytes(t *testing.T) {
	const (
		typeName = "02 5f78 04 5f746370 05 6c6f63616c 00"                                  // at 12
		ptr      = "000c 0001 00000078 0008 05 616c706861 c00c"                            // instance at 37
		ownSRV   = "0021 8001 00000078 0013 0000 0000 1f90 05 616c706861 05 6c6f63616c 00" // its target, never compressed, at 63
		ownTXT   = "0010 8001 00000078 0008 03 763d31 03 623d5c"
	)
	r := alpha(t)
	for _, tt := range []struct {
		name string
		m    *dns.Msg
		want string
	}{
		{"query", query("_x._tcp.local.", dns.TypePTR), "0000 0000 0001 0000 0000 0000" + typeName + "000c 0001"},
		{"goodbye", goodbye(r), "0000 8400 0000 0001 0000 0000" + typeName + "000c 0001 00000000 0008 05 616c706861 c00c"},
		{"announcement", announcement(r, twoAddrs), "0000 8400 0000 0005 0000 0000" + typeName + ptr +
			"c025" + ownSRV + "c025" + ownTXT +
			"c03f 0001 8001 00000078 0004 c0000201" +
			"c03f 0001 8001 00000078 0004 c0000209"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, err := pack(tt.m)
			require.NoError(t, err)
			require.Equal(t, wire(tt.want), hex.EncodeToString(b))
		})
	}
}

// lines returns records as text, with the section in front.
func lines(m *dns.Msg) []string {
	var list []string
	for _, section := range []struct {
		name string
		rrs  []dns.RR
	}{{"answer", m.Answer}, {"authority", m.Ns}, {"additional", m.Extra}} {
		for _, rr := range section.rrs {
			list = append(list, section.name+" "+strings.Join(strings.Fields(rr.String()), " "))
		}
	}
	return list
}

const (
	linePTR  = "_x._tcp.local. 120 IN PTR alpha._x._tcp.local."
	lineSRV  = "alpha._x._tcp.local. 120 IN SRV 0 0 8080 alpha.local."
	lineTXT  = `alpha._x._tcp.local. 120 IN TXT "v=1" "b=\\"`
	lineA    = "alpha.local. 120 IN A 192.0.2.1"
	lineType = "_services._dns-sd._udp.local. 120 IN PTR _x._tcp.local."
)

func TestAQuestionIsAnsweredWithTheseRecords(t *testing.T) {
	r := alpha(t)
	instance := []string{"answer " + lineSRV, "answer " + lineTXT, "additional " + lineA}
	all := []string{"answer " + linePTR, "additional " + lineSRV, "additional " + lineTXT, "additional " + lineA}
	for _, tt := range []struct {
		name string
		kind uint16
		want []string
	}{
		{"_x._tcp.local.", dns.TypePTR, all},
		{"_X._TCP.LOCAL.", dns.TypeANY, all},
		{"_x._tcp.local.", dns.TypeSRV, nil},
		{"alpha._x._tcp.local.", dns.TypeSRV, instance},
		{"alpha._x._tcp.local.", dns.TypeTXT, instance},
		{"Alpha._x._tcp.local.", dns.TypeANY, instance},
		{"alpha._x._tcp.local.", dns.TypePTR, nil},
		{"alpha.local.", dns.TypeA, []string{"answer " + lineA}},
		{"alpha.local.", dns.TypeANY, []string{"answer " + lineA}},
		{"alpha.local.", dns.TypeAAAA, nil},
		{"_services._dns-sd._udp.local.", dns.TypePTR, []string{"answer " + lineType}},
		{"beta._x._tcp.local.", dns.TypeANY, nil},
		{"_y._tcp.local.", dns.TypePTR, nil},
	} {
		k := r.asked(question{name: tt.name, kind: tt.kind})
		var got []string
		if k != 0 {
			got = lines(reply([]answer{{r, k}}, twoAddrs[:1], recordTTL))
		}
		require.Equal(t, tt.want, got, "%s %s", tt.name, dns.TypeToString[tt.kind])
	}
}

func TestAddressesFollowTheirHostsInAPacket(t *testing.T) {
	a := alpha(t)
	b, err := newRecords(Service{Instance: "beta", Type: "_x._tcp", Host: "alpha", Port: 81})
	require.NoError(t, err)
	lineSRV2, lineTXT2 := "beta._x._tcp.local. 120 IN SRV 0 0 81 alpha.local.", `beta._x._tcp.local. 120 IN TXT ""`

	require.Equal(t, []string{
		"answer " + linePTR, "answer _x._tcp.local. 120 IN PTR beta._x._tcp.local.",
		"additional " + lineSRV, "additional " + lineTXT, "additional " + lineSRV2, "additional " + lineTXT2,
		"additional " + lineA,
	}, lines(reply([]answer{{a, kindPTR}, {b, kindPTR}}, twoAddrs[:1], recordTTL)), "the host's once, at the end")

	require.Equal(t, []string{"answer " + linePTR, "answer " + lineSRV, "answer " + lineTXT, "answer " + lineA},
		lines(reply([]answer{{a, kindPTR | kindA}}, twoAddrs[:1], recordTTL)), "also where they are asked for")
}

func TestManyServicesTakeSeveralPackets(t *testing.T) {
	var answers []answer
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		r, err := newRecords(Service{Instance: name, Type: "_x._tcp", TXT: []string{strings.Repeat("t", 255), strings.Repeat("u", 200)}})
		require.NoError(t, err)
		answers = append(answers, answer{r, kindPTR})
	}
	groups := split(answers, twoAddrs)
	require.Len(t, groups, 3)
	for _, group := range groups {
		b, err := pack(reply(group, twoAddrs, recordTTL))
		require.NoError(t, err)
		require.LessOrEqual(t, len(b), wantedBytes)
	}
}

func TestTheLargestServiceFitsAPacket(t *testing.T) {
	label := strings.Repeat(`\`, 63)
	s := Service{Instance: label + "." + label + "." + label, Type: "_x._tcp", TXT: make([]string, 0, 1300)}
	for range 5 {
		s.TXT = append(s.TXT, strings.Repeat(`\`, 255))
	}
	r, err := newRecords(s)
	require.NoError(t, err)
	many := make([]netip.Addr, 100)
	for i := range many {
		many[i] = netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
	}
	b, err := pack(announcement(r, many))
	require.NoError(t, err)
	require.Less(t, len(b), 3000)
}

func TestATextThatDNSCannotCarryIsRefused(t *testing.T) {
	for _, txt := range [][]string{{"k=" + strings.Repeat("v", 254)}, make([]string, 1301)} {
		_, err := recordTXT(txt)
		require.Error(t, err)
	}
	for _, txt := range [][]string{nil, {}, {""}} {
		got, err := recordTXT(txt)
		require.NoError(t, err)
		require.Equal(t, []string{""}, got)
	}
}

func TestWhatAnAskerKnowsIsNotSent(t *testing.T) {
	r := alpha(t)
	rr := func(text string) dns.RR {
		rr, err := dns.NewRR(text)
		require.NoError(t, err)
		return rr
	}
	for _, tt := range []struct {
		name  string
		asked kinds
		known dns.RR
		want  kinds
	}{
		{"the record", kindPTR, rr(linePTR), kindPTR},
		{"in other case", kindPTR, rr("_X._tcp.local. 120 IN PTR ALPHA._x._tcp.local."), kindPTR},
		{"half as long", kindPTR, rr("_x._tcp.local. 60 IN PTR alpha._x._tcp.local."), kindPTR},
		{"for too short", kindPTR, rr("_x._tcp.local. 59 IN PTR alpha._x._tcp.local."), 0},
		{"another's", kindPTR, rr("_x._tcp.local. 120 IN PTR beta._x._tcp.local."), 0},
		{"one of two", kindSRV | kindTXT, rr(lineSRV), kindSRV},
		{"an old text", kindSRV | kindTXT, rr(`alpha._x._tcp.local. 120 IN TXT "v=0" "b=\\"`), 0},
		{"the text", kindSRV | kindTXT, rr(lineTXT), kindTXT},
		{"an old port", kindSRV, rr("alpha._x._tcp.local. 120 IN SRV 0 0 80 alpha.local."), 0},
		{"the type", kindType, rr(lineType), kindType},
		{"an address", kindA, rr(lineA), 0},
		{"not asked for", kindPTR, rr(lineSRV), 0},
	} {
		if got := r.known(tt.asked, []dns.RR{tt.known}); got != tt.want {
			t.Errorf("%s: known %b; want %b", tt.name, got, tt.want)
		}
	}
}
