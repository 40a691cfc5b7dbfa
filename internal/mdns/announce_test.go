// SPDX-License-Identifier: Apache-2.0

package mdns_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"

	"nvpair/internal/mdns"
)

const (
	probeAlpha    = "probe alpha._x._tcp.local."
	announceAlpha = "announce alpha._x._tcp.local. v=1"
	goodbyeAlpha  = "goodbye alpha._x._tcp.local."
	ms            = time.Millisecond
)

func TestAServiceIsProbedAnnouncedAndWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		n := w.run(w.machine("192.0.2.1/24"))
		p := w.publish(n, alphaService)
		pass(125 * time.Second)
		const us = "192.0.2.1"
		require.Equal(t, []line{
			{0, us, probeAlpha}, {250 * ms, us, probeAlpha}, {500 * ms, us, probeAlpha},
			{750 * ms, us, announceAlpha}, {1750 * ms, us, announceAlpha},
			{60750 * ms, us, announceAlpha}, {120750 * ms, us, announceAlpha},
		}, w.sent())

		p.Withdraw()
		p.Withdraw()
		pass(200 * time.Second)
		require.Equal(t, []line{{125 * time.Second, us, goodbyeAlpha}}, w.sent())
	})
}

func TestAChangedTextIsAnnouncedAtOnceAndAtMostOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		n := w.run(w.machine("192.0.2.1/24"))
		p := w.publish(n, alphaService)
		pass(2500 * ms)
		w.sent()

		text := []string{"v=2"}
		require.NoError(t, p.SetTXT(text))
		text[0] = "changed later"
		pass(300 * ms)
		require.NoError(t, p.SetTXT([]string{"v=3"}))
		pass(100 * ms)
		require.NoError(t, p.SetTXT([]string{"v=4"}))
		pass(1600 * ms)
		require.NoError(t, p.SetTXT([]string{"v=4"})) // no change
		require.Error(t, p.SetTXT([]string{strings.Repeat("x", 256)}))
		pass(56500 * ms) // to 61 s
		const us, name = "192.0.2.1", "announce alpha._x._tcp.local. "
		require.Equal(t, []line{{2500 * ms, us, name + "v=2"}, {3500 * ms, us, name + "v=4"}, {60750 * ms, us, name + "v=4"}},
			w.sent(), "the periodic one stays where it was")
	})
}

func TestATextChangedWhileProbingIsTheFirstAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		n := w.run(w.machine("192.0.2.1/24"))
		p := w.publish(n, alphaService)
		pass(600 * ms)
		require.NoError(t, p.SetTXT(nil))
		pass(400 * ms)
		require.Equal(t, line{750 * ms, "192.0.2.1", "announce alpha._x._tcp.local. "}, w.sent()[3])
	})
}

func TestRunSaysGoodbyeForAllBeforeItReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.machine("192.0.2.1/24")
		h.Attach("eth1", "other", "198.51.100.1/24")
		n := w.run(h)
		w.publish(n, alphaService)
		w.publish(n, mdns.Service{Instance: "b", Type: "_y._tcp"})
		pass(5 * time.Second)
		w.sent()
		n.stop()
		require.Equal(t, []line{{5 * time.Second, "192.0.2.1", goodbyeAlpha}, {5 * time.Second, "198.51.100.1", goodbyeAlpha},
			{5 * time.Second, "192.0.2.1", "goodbye b._y._tcp.local."},
			{5 * time.Second, "198.51.100.1", "goodbye b._y._tcp.local."}}, w.sent())
		require.Empty(t, n.Links())
	})
}

func TestAnInstanceIsPublishedOnce(t *testing.T) {
	n := mdns.New(mdns.Config{})
	p, err := n.Publish(alphaService)
	require.NoError(t, err)
	again := alphaService
	again.Instance = "ALPHA"
	_, err = n.Publish(again)
	require.Error(t, err)
	p.Withdraw()
	_, err = n.Publish(again)
	require.NoError(t, err)
	_, err = n.Publish(mdns.Service{Type: serviceType})
	require.Error(t, err)
	_, err = n.Browse("..", nil)
	require.Error(t, err)
}

func TestANamesakeIsLoggedOnceAndChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first, second := w.run(w.machine("192.0.2.1/24")), w.run(w.machine("192.0.2.2/24"))
		w.publish(first, alphaService)
		pass(10 * time.Second)
		w.sent()
		namesake := alphaService
		namesake.TXT = []string{"v=2"}
		_, seen := w.browse(first)
		w.publish(second, namesake)
		pass(50 * time.Second)
		var answers, announcements int
		for _, l := range w.sent() {
			switch {
			case strings.HasPrefix(l.what, "reply SRV TXT/"):
				answers++
			case strings.HasPrefix(l.what, "announce "):
				announcements++
				require.Equal(t, "192.0.2.2", l.from)
			}
		}
		require.LessOrEqual(t, answers, 3, "one for each probe")
		require.Equal(t, 2, announcements, "those of the new one only")
		pass(200 * time.Second)
		require.Equal(t, 1, strings.Count(first.log.String(), "instance name is used by another host too"))
		require.Equal(t, 1, strings.Count(second.log.String(), "instance name is used by another host too"))

		texts := map[string]bool{}
		for _, s := range seen.take() {
			require.Equal(t, "alpha", s.Instance)
			texts[s.TXT[0]] = true
		}
		require.Equal(t, map[string]bool{"v=1": true, "v=2": true}, texts)
	})
}

func TestDefendingANameDoesNotFloodTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.publish(w.run(w.machine("192.0.2.1/24")), alphaService)
		pass(10 * time.Second)
		w.sent()
		for range 1000 { // a hostile prober, for 10 s
			w.ask("192.0.2.66:5353", func(m *dns.Msg) {
				m.Question[0] = dns.Question{Name: "alpha._x._tcp.local.", Qtype: dns.TypeANY, Qclass: dns.ClassINET}
				m.Ns = []dns.RR{record(t, "alpha._x._tcp.local. 120 IN SRV 0 0 1 b.local.")}
			})
			pass(10 * ms)
		}
		answers := 0
		for _, l := range w.sent() {
			if l.from == "192.0.2.1" {
				answers++
			}
		}
		require.LessOrEqual(t, answers, 41, "one in 250 ms")
		require.Greater(t, answers, 30)
	})
}
