// SPDX-License-Identifier: Apache-2.0

package mdns_test

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"

	"nvpair/internal/mdns"
)

func TestAQuestionAskedByAnotherHostIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, n := settled(t)
		b, _ := w.browse(n)
		query := "query PTR " + ptrQuestion
		count := func() (queries int) {
			pass(ms)
			for _, l := range w.answers() {
				if l.what == query {
					queries++
				}
			}
			return queries
		}
		b.Query()
		require.Equal(t, 1, count())
		pass(100 * ms)
		b.Query()
		require.Equal(t, 1, count(), "our own question is none of another host")

		w.ask(peer, nil)
		pass(1900 * ms)
		b.Query()
		require.Zero(t, count())
		w.ask(peer, nil)
		b.Query()
		require.Equal(t, 1, count(), "not twice in succession")
		pass(2 * time.Second)

		w.ask(peer, nil)
		pass(2100 * ms)
		b.Query()
		require.Equal(t, 1, count(), "too long ago")
		pass(2 * time.Second)

		w.ask(peer, func(m *dns.Msg) {
			m.Answer = []dns.RR{record(t, "_x._tcp.local. 120 IN PTR alpha._x._tcp.local.")}
		})
		pass(100 * ms)
		b.Query()
		require.Equal(t, 1, count(), "the other host knows some answers")

		pass(2 * time.Second)
		w.ask("192.0.2.7:40000", nil)
		pass(100 * ms)
		b.Query()
		require.Equal(t, 1, count(), "only a plain resolver gets the answers")
	})
}

func TestResponsesFromElsewhereAreIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		_, seen := w.browse(w.run(w.machine("192.0.2.1/24")))
		pass(ms)
		response := func(m *dns.Msg) {
			m.Response, m.Question = true, nil
			m.Answer = []dns.RR{record(t, "_x._tcp.local. 120 IN PTR b._x._tcp.local."),
				record(t, "b._x._tcp.local. 120 IN SRV 0 0 80 b.local."), record(t, "b.local. 120 IN A 192.0.2.2")}
		}
		w.ask("192.0.2.2:40000", response)
		pass(ms)
		require.Empty(t, seen.take(), "not from port 5353")
		w.ask("203.0.113.2:5353", response)
		pass(ms)
		require.Len(t, seen.take(), 1, "another subnet on the same link")
	})
}

func TestTwoHostsSeeEachOtherAndTheGoodbye(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.run(w.machine("192.0.2.1/24")), w.run(w.machine("192.0.2.2/24"))
		w.publish(a, alphaService)
		w.publish(b, mdns.Service{Instance: "beta 2.0", Type: serviceType, Port: 9})
		pass(10 * time.Second)

		browser, seen := w.browse(a)
		browser.Query()
		pass(125 * ms)
		names := map[string]bool{}
		for _, s := range seen.take() {
			names[s.Instance] = true
		}
		require.Equal(t, map[string]bool{"alpha": true, "beta 2.0": true}, names, "its own as well")

		b.stop()
		pass(ms)
		require.Equal(t, []mdns.Sighting{{Instance: "beta 2.0", Goodbye: true, Interface: 1,
			Source: netip.MustParseAddr("192.0.2.2")}}, seen.take())

		browser.Close()
		w.ask(peer, nil)
		pass(time.Second)
		require.Empty(t, seen.take())
	})
}

func TestTwoConnsOnOneMachineSeeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.machine("192.0.2.1/24")
		first, second := w.run(h), w.run(h)
		w.publish(first, alphaService)
		namesake := alphaService
		namesake.Port = 81
		w.publish(second, namesake)
		pass(5 * time.Second)
		browser, seen := w.browse(second)
		browser.Query()
		pass(time.Second)
		ports := map[uint16]bool{}
		for _, s := range seen.take() {
			ports[s.Port] = true
		}
		require.Equal(t, map[uint16]bool{8080: true, 81: true}, ports)
		require.Zero(t, strings.Count(first.log.String(), "another host"))
	})
}
