// SPDX-License-Identifier: Apache-2.0

package mdns_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"

	"nvpair/internal/mdns"
)

const (
	peer     = "192.0.2.7:5353"
	replyPTR = "reply PTR/SRV TXT A"
	replySRV = "reply SRV TXT/A"
)

// settled is a world with alpha at 192.0.2.1, five seconds after its last word.
func settled(t *testing.T) (*world, *node) {
	w := newWorld(t)
	n := w.run(w.machine("192.0.2.1/24"))
	w.publish(n, alphaService)
	pass(7 * time.Second)
	w.sent()
	w.begin = time.Now()
	return w, n
}

// answers returns what 192.0.2.1 sent.
func (w *world) answers() []line {
	var list []line
	for _, l := range w.sent() {
		if l.from == "192.0.2.1" {
			list = append(list, l)
		}
	}
	return list
}

func TestASharedAnswerIsDelayedAndMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, n := settled(t)
		w.publish(n, mdns.Service{Instance: "beta", Type: serviceType, Host: "alpha"})
		pass(5 * time.Second)
		w.sent()
		for range 20 {
			begin := time.Now()
			w.ask(peer, nil)
			pass(15 * ms)
			w.ask("192.0.2.8:5353", nil)
			pass(1500 * ms)
			list := w.answers()
			require.Len(t, list, 1)
			require.Equal(t, "reply PTR PTR/SRV TXT SRV TXT A", list[0].what)
			delay := w.begin.Add(list[0].at).Sub(begin)
			require.GreaterOrEqual(t, delay, 20*ms)
			require.LessOrEqual(t, delay, 120*ms)
		}
	})
}

func TestARecordIsMulticastOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := settled(t)
		for range 500 { // for 10 s
			w.ask(peer, nil)
			pass(20 * ms)
		}
		pass(2 * time.Second)
		list := w.answers()
		require.InDelta(t, 11, len(list), 1)
		for i, l := range list {
			require.Equal(t, replyPTR, l.what)
			if i > 0 {
				require.GreaterOrEqual(t, l.at-list[i-1].at, time.Second)
			}
		}
	})
}

func TestAnAnswerThatComesTooEarlyIsSentLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := settled(t)
		srv := func(m *dns.Msg) {
			m.Question[0] = dns.Question{Name: "alpha._x._tcp.local.", Qtype: dns.TypeSRV, Qclass: dns.ClassINET}
		}
		w.ask(peer, srv)
		pass(500 * ms)
		w.ask("192.0.2.8:5353", nil) // its answer would repeat SRV and TXT
		pass(2 * time.Second)
		require.Equal(t, []line{{0, "192.0.2.1", replySRV}, {time.Second, "192.0.2.1", replyPTR}}, w.answers())
	})
}

func TestAProbeDoesNotShortenTheSecondOfOtherRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := settled(t)
		for range 100 { // for 10 s
			w.ask(peer, nil)
			w.ask(peer, func(m *dns.Msg) {
				m.Question[0] = dns.Question{Name: "alpha._x._tcp.local.", Qtype: dns.TypeANY, Qclass: dns.ClassINET}
				m.Ns = []dns.RR{record(t, "alpha._x._tcp.local. 120 IN SRV 0 0 1 b.local.")}
			})
			pass(100 * ms)
		}
		var last time.Duration
		for i, l := range w.answers() {
			if !strings.HasPrefix(l.what, "reply PTR") {
				continue
			}
			require.True(t, i == 0 || l.at-last >= time.Second, "after %v", l.at-last)
			last = l.at
		}
		require.NotZero(t, last)
	})
}

func TestKnownAnswersAreNotSent(t *testing.T) {
	known := func(ttl uint32) func(*dns.Msg) {
		return func(m *dns.Msg) {
			m.Answer = []dns.RR{record(t, fmt.Sprintf("_x._tcp.local. %d IN PTR alpha._x._tcp.local.", ttl))}
		}
	}
	for _, tt := range []struct {
		ttl  uint32
		want int
	}{{120, 0}, {60, 0}, {59, 1}} {
		synctest.Test(t, func(t *testing.T) {
			w, _ := settled(t)
			w.ask(peer, known(tt.ttl))
			pass(2 * time.Second)
			require.Len(t, w.answers(), tt.want, "TTL %d", tt.ttl)
		})
	}
}

func TestKnownAnswersMayFollowInLaterPackets(t *testing.T) {
	truncated := func(m *dns.Msg) { m.Truncated = true }
	rest := func(m *dns.Msg) {
		m.Question = nil
		m.Answer = []dns.RR{record(t, "_x._tcp.local. 120 IN PTR alpha._x._tcp.local.")}
	}
	for _, tt := range []struct {
		name  string
		after func(w *world)
		want  int
	}{
		{"they do", func(w *world) { w.ask(peer, rest) }, 0},
		{"they do not", func(*world) {}, 1},
		{"those of another asker", func(w *world) { w.ask("192.0.2.8:5353", rest) }, 1},
		{"there is a second asker", func(w *world) { w.ask("192.0.2.8:5353", nil); w.ask(peer, rest) }, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, _ := settled(t)
			w.ask(peer, truncated)
			pass(250 * ms)
			require.Empty(t, w.answers(), tt.name)
			tt.after(w)
			pass(2 * time.Second)
			require.Len(t, w.answers(), tt.want, tt.name)
		})
	}
}

func TestATypeNamedByAnotherHostIsNotRepeated(t *testing.T) {
	enumerate := func(m *dns.Msg) { m.Question[0].Name = "_services._dns-sd._udp.local." }
	synctest.Test(t, func(t *testing.T) {
		w, _ := settled(t)
		w.ask(peer, enumerate)
		pass(time.Second)
		require.Equal(t, "reply PTR/", w.answers()[0].what)

		pass(time.Second)
		w.ask(peer, enumerate)
		w.ask("192.0.2.8:5353", func(m *dns.Msg) {
			m.Response, m.Question = true, nil
			m.Answer = []dns.RR{record(t, "_services._dns-sd._udp.local. 120 IN PTR _x._tcp.local.")}
		})
		pass(2 * time.Second)
		require.Empty(t, w.answers())
	})
}

func TestAQuestionMayAskForAUnicastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := settled(t)
		unicast := func(m *dns.Msg) { m.Question[0].Qclass |= 1 << 15 }
		w.ask(peer, unicast)
		pass(time.Second)
		require.Equal(t, []line{{0, "192.0.2.1", replyPTR + " to " + peer}}, w.answers())

		w.ask("203.0.113.7:5353", unicast) // another subnet on the same link
		pass(time.Second)
		require.Equal(t, replyPTR, w.answers()[0].what)
	})
}

func TestAPlainResolverIsAnsweredInItsOwnTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := settled(t)
		resolver := "192.0.2.7:40000"
		w.ask(resolver, func(m *dns.Msg) { m.Id = 4711 })
		packets := w.Packets()
		for len(packets) < 2 {
			pass(ms)
			packets = append(packets, w.Packets()...)
		}
		require.Equal(t, netip.MustParseAddrPort(resolver), packets[1].To)
		m := new(dns.Msg)
		require.NoError(t, m.Unpack(packets[1].Data))
		require.Equal(t, uint16(4711), m.Id)
		require.Equal(t, []dns.Question{{Name: ptrQuestion, Qtype: dns.TypePTR, Qclass: dns.ClassINET}}, m.Question)
		require.Equal(t, "PTR/SRV TXT A", types(m.Answer)+"/"+types(m.Extra))
		for _, rr := range append(m.Answer, m.Extra...) {
			require.Equal(t, uint16(dns.ClassINET), rr.Header().Class)
			require.LessOrEqual(t, rr.Header().Ttl, uint32(10))
		}

		w.ask("203.0.113.7:40000", nil) // not on the subnet
		pass(2 * time.Second)
		require.Empty(t, w.answers())
	})
}

func TestWhatIsNoQuestionToUsIsIgnored(t *testing.T) {
	for name, change := range map[string]func(*dns.Msg){
		"another type":     func(m *dns.Msg) { m.Question[0].Name = "_y._tcp.local." },
		"another class":    func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS },
		"another opcode":   func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate },
		"an error":         func(m *dns.Msg) { m.Rcode = dns.RcodeServerFailure },
		"a response":       func(m *dns.Msg) { m.Response = true },
		"no question":      func(m *dns.Msg) { m.Question = nil },
		"another instance": func(m *dns.Msg) { m.Question[0].Name = "beta._x._tcp.local." },
	} {
		synctest.Test(t, func(t *testing.T) {
			w, _ := settled(t)
			w.ask(peer, change)
			pass(3 * time.Second)
			require.Empty(t, w.answers(), name)
		})
	}
}
