// SPDX-License-Identifier: Apache-2.0

package mdns_test

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/mdns"
)

func TestEachInterfaceHearsItsOwnAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.machine("192.0.2.1/24")
		h.Attach("eth1", "other", "198.51.100.1/24", "198.51.100.2/24")
		other := w.Host()
		other.Attach("eth0", "other", "198.51.100.9/24")
		n := w.run(h)
		w.publish(n, alphaService)
		_, seen := w.browse(w.run(other))
		pass(time.Second)
		list := seen.take()
		require.Len(t, list, 1)
		require.Equal(t, mdns.Sighting{Instance: "alpha", Host: "alpha.local", Port: 8080, TXT: []string{"v=1"},
			Addrs:     []netip.Addr{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("198.51.100.2")},
			Interface: 1, Source: netip.MustParseAddr("198.51.100.1"), TTL: 120 * time.Second}, list[0])
	})
}

func TestAChangeOfInterfacesSettlesAndIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.Host()
		n := w.run(h)
		w.publish(n, alphaService)
		w.browse(n)
		pass(5 * time.Second)
		require.Empty(t, w.sent(), "there is no interface")
		require.Empty(t, n.Links())

		h.Attach("eth0", lan, "192.0.2.1/24") // noticed by polling at 10 s
		pass(8 * time.Second)                 // to 13 s
		const us = "192.0.2.1"
		query := "query PTR " + ptrQuestion
		list := w.sent()
		require.Equal(t, []line{{11500 * ms, us, announceAlpha}, {11500 * ms, us, query}}, list[:2])
		require.Equal(t, line{12500 * ms, us, announceAlpha}, list[len(list)-1])
		require.Len(t, n.Links(), 1)

		h.Attach("eth1", "other", "198.51.100.1/24")
		for range 10 { // a burst counts as one
			n.NetworkChanged()
			pass(100 * ms)
		}
		pass(400 * ms)
		require.Empty(t, w.sent())
		pass(200 * ms)
		at := 14500 * ms
		require.Equal(t, []line{{at, us, announceAlpha}, {at, "198.51.100.1", announceAlpha}, {at, us, query},
			{at, "198.51.100.1", query}}, w.sent()[:4])

		h.Detach("eth0")
		h.Detach("eth1")
		n.NetworkChanged()
		pass(20 * time.Second)
		require.Len(t, n.Links(), 2, "an empty list keeps the last good one")
		require.Error(t, n.Links()[0].Err)
	})
}

func TestACallerThatHearsOfChangesNeedsNoPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.Host()
		n := w.runWith(mdns.Config{Network: h, PollEvery: -1, Debounce: -1})
		w.publish(n, alphaService)
		pass(time.Second)
		h.Attach("eth0", lan, "192.0.2.1/24")
		pass(time.Hour)
		require.Empty(t, n.Links())
		n.NetworkChanged()
		pass(ms)
		require.Len(t, n.Links(), 1)
		require.Equal(t, line{time.Hour + time.Second, "192.0.2.1", announceAlpha}, w.sent()[0])
	})
}

func TestOnlyConfiguredInterfacesAreUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.machine("192.0.2.1/24")
		h.Attach("eth1", lan, "192.0.2.2/24")
		n := w.runWith(mdns.Config{Network: h, Interfaces: []string{"eth1", "eth7"}})
		w.publish(n, alphaService)
		pass(2 * time.Second)
		for _, l := range w.sent() {
			require.Equal(t, "192.0.2.2", l.from)
		}
		require.Equal(t, "eth1", n.Links()[0].Name)
	})
}

func TestFailuresToSendAreCountedAndWarnedOfOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.machine("192.0.2.1/24")
		h.Attach("eth1", "other", "198.51.100.1/24")
		n := w.run(h)
		w.publish(n, alphaService)
		b, _ := w.browse(n)
		failure := errors.New("no route to host")
		ask := func() []mdns.Link { b.Query(); pass(time.Second); return n.Links() }

		h.Break("eth1", failure)
		for i := 1; i <= 3; i++ {
			links := ask()
			require.Zero(t, links[0].FailedQueries)
			require.Equal(t, i, links[1].FailedQueries)
			require.ErrorIs(t, links[1].Err, failure)
		}
		require.Zero(t, strings.Count(n.log.String(), "WARN"))

		h.Break("eth0", failure)
		for range 3 {
			ask()
		}
		require.Equal(t, 1, strings.Count(n.log.String(), "multicast cannot be sent on any interface"))
		require.Equal(t, 2, strings.Count(n.log.String(), "no route to host"), "in that line, once for each interface")

		h.Break("eth1", nil)
		links := ask()
		require.Equal(t, []int{4, 0}, []int{links[0].FailedQueries, links[1].FailedQueries})
		require.NoError(t, links[1].Err)
		h.Break("eth1", failure)
		ask()
		require.Equal(t, 2, strings.Count(n.log.String(), "WARN"))
	})
}

// crowded is a network whose listeners join the group on one interface only.
type crowded struct {
	mdns.Network
	only string
}

func (c crowded) Listen() (mdns.Listener, error) {
	l, err := c.Network.Listen()
	return crowdedListener{l, c.only}, err
}

type crowdedListener struct {
	mdns.Listener
	only string
}

func (l crowdedListener) Join(on mdns.Interface) error {
	if on.Name != l.only {
		return os.NewSyscallError("setsockopt", syscall.ENOBUFS)
	}
	return l.Listener.Join(on)
}

func TestAnInterfaceTooManyIsWarnedOfOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h := w.machine("192.0.2.1/24")
		h.Attach("eth1", "other", "198.51.100.1/24")
		n := w.runWith(mdns.Config{Network: crowded{h, "eth0"}})
		pass(time.Second)
		warnings := func(name string) int {
			count := 0
			for line := range strings.Lines(n.log.String()) {
				if strings.Contains(line, "WARN") && strings.Contains(line, "igmp_max_memberships") && strings.Contains(line, "interface="+name) {
					count++
				}
			}
			return count
		}
		require.Equal(t, []int{0, 1, 0}, []int{warnings("eth0"), warnings("eth1"), warnings("eth2")})

		h.Attach("eth2", "third", "203.0.113.1/24")
		n.NetworkChanged()
		pass(5 * time.Second)
		require.Equal(t, []int{0, 1, 1}, []int{warnings("eth0"), warnings("eth1"), warnings("eth2")})
	})
}

func TestASocketThatFailsIsOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		h, other := w.machine("192.0.2.1/24"), w.machine("192.0.2.2/24")
		n := w.run(h)
		_, seen := w.browse(n)
		h.Deafen(errors.New("no buffer space"))
		pass(30 * time.Second)
		require.Equal(t, 1, strings.Count(n.log.String(), "multicast cannot be received"))
		h.Deafen(nil)
		pass(10 * time.Second)
		w.publish(w.run(other), alphaService)
		pass(time.Second)
		require.Len(t, seen.take(), 1)
	})
}
