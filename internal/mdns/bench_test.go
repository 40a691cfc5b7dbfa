// SPDX-License-Identifier: Apache-2.0

package mdns

import (
	"testing"
	"time"

	"github.com/miekg/dns"
)

// handled measures what one packet costs, its answer included, with two services published and one type browsed.
func handled(b *testing.B, m *dns.Msg) {
	packet, err := m.Pack()
	if err != nil {
		b.Fatal(err)
	}
	r, s, now := quiet(b)
	from := Origin{Source: stranger, Interface: 1, Multicast: true}
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(2 * time.Second)
		r.handle(packet, from, now)
		r.answerDue(r.links[0], now.Add(time.Second))
		s.packets = s.packets[:0]
	}
}

func BenchmarkIrrelevantQuestion(b *testing.B) { handled(b, query("_ipp._tcp.local.", dns.TypePTR)) }

func BenchmarkIrrelevantResponse(b *testing.B) {
	r, err := newRecords(Service{Instance: "Kim's printer", Type: "_ipp._tcp", Port: 631, TXT: []string{"rp=print", "pdl=x"}})
	if err != nil {
		b.Fatal(err)
	}
	handled(b, announcement(r, twoAddrs))
}

func BenchmarkAnswer(b *testing.B) { handled(b, query("_x._tcp.local.", dns.TypePTR)) }

func BenchmarkSighting(b *testing.B) { handled(b, announcement(alpha(b), twoAddrs)) }
