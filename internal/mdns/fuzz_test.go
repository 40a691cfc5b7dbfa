// SPDX-License-Identifier: Apache-2.0

package mdns

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// sink is a Network that keeps what is sent.
type sink struct {
	t       testing.TB
	packets [][]byte
}

func (*sink) Interfaces() ([]Interface, error) {
	return []Interface{{Name: "eth0", Index: 1, Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}}}, nil
}
func (*sink) Listen() (Listener, error) { return nil, errMalformed }
func (s *sink) Send(_ Interface, to netip.AddrPort, packet []byte) error {
	if to != Group() && to.Addr() != stranger.Addr() {
		s.t.Errorf("sent to %s", to)
	}
	s.packets = append(s.packets, packet)
	return nil
}

var stranger = netip.MustParseAddrPort("192.0.2.7:5353")

// quiet is a run that publishes and browses and has long said all it has to by itself.
func quiet(t testing.TB) (*run, *sink, time.Time) {
	s := &sink{t: t}
	c := New(Config{Network: s, Rand: rand.New(rand.NewPCG(1, 2))})
	for _, service := range []Service{
		{Instance: "alpha", Type: "_x._tcp", Port: 8080, TXT: []string{"v=1"}},
		{Instance: "be.ta", Type: "_x._tcp", Host: "alpha", Port: 8081},
	} {
		if _, err := c.Publish(service); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Browse("_x._tcp", func(s Sighting) {
		if s.Instance == "" || !s.Goodbye && len(s.Addrs) == 0 {
			t.Errorf("useless sighting %+v", s)
		}
	}); err != nil {
		t.Fatal(err)
	}
	r := newRun(c)
	now := time.Now()
	r.start(now)
	for range 10 {
		r.step(now)
		now = now.Add(time.Second)
	}
	s.packets = nil
	return r, s, now
}

// FuzzPacket: whatever arrives is answered by well-formed responses of bounded size, if at all; a response never
// is; and nothing is left of it afterwards.
func FuzzPacket(f *testing.F) {
	r := alpha(f)
	add := func(port uint16, m *dns.Msg) {
		b, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(port, b)
	}
	add(Port, query("_x._tcp.local.", dns.TypePTR))
	add(40000, query("_x._tcp.local.", dns.TypePTR))
	add(40000, query("_services._dns-sd._udp.local.", dns.TypeANY))
	add(Port, probe(r))
	add(Port, announcement(r, twoAddrs))
	add(Port, goodbye(r))
	unicast := query("alpha._x._tcp.local.", dns.TypeANY)
	unicast.Question[0].Qclass |= topBit
	unicast.Answer = r.build(kindAll, twoAddrs, 120, true)
	add(Port, unicast)
	more := query("_x._tcp.local.", dns.TypePTR)
	more.Truncated = true
	add(Port, more)
	f.Add(uint16(Port), []byte("\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x0c\x00\x01")) // points at itself

	f.Fuzz(func(t *testing.T, port uint16, b []byte) {
		r, s, now := quiet(t)
		r.handle(b, Origin{Source: netip.AddrPortFrom(stranger.Addr(), port), Interface: 1, Multicast: true}, now)
		for range 3 { // what waits for its time
			now = now.Add(time.Second)
			for _, l := range r.links {
				r.answerDue(l, now)
			}
		}
		if isResponse := len(b) > 2 && b[2]&0x80 != 0; isResponse && len(s.packets) > 0 {
			t.Errorf("a response was answered")
		}
		if len(s.packets) > 3 {
			t.Errorf("answered by %d packets", len(s.packets))
		}
		for _, packet := range s.packets {
			m := new(dns.Msg)
			if err := m.Unpack(packet); err != nil || !m.Response || len(m.Answer) == 0 {
				t.Errorf("bad answer %x: %v", packet, err)
			}
			if len(packet) > maxPacketBytes || len(m.Question) > maxLegacy {
				t.Errorf("answer of %d bytes with %d questions", len(packet), len(m.Question))
			}
		}
		l := r.links[0]
		if len(l.pending) > 0 || len(l.heard) > 1 || len(l.lastSent) > 10 {
			t.Errorf("left: %d pending, %d heard, %d sent", len(l.pending), len(l.heard), len(l.lastSent))
		}
	})
}

// FuzzUnescape: the clear text of a name or string that was received, sent again, is the same.
func FuzzUnescape(f *testing.F) {
	for _, s := range []string{"alpha", `a\.b`, "\x00\xff", `"\`, "é.x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > maxStringBytes {
			return
		}
		m := respond()
		m.Answer = []dns.RR{&dns.TXT{Hdr: dns.RR_Header{Name: "x.", Rrtype: dns.TypeTXT, Class: dns.ClassINET}, Txt: []string{escapeText(s)}}}
		b, err := pack(m)
		if err != nil {
			t.Fatal(err)
		}
		p, err := parseHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.records()
		if err != nil || unescape(got.answers[0].(*dns.TXT).Txt[0]) != s {
			t.Errorf("%q became %q, %v", s, got.answers[0], err)
		}
	})
}
