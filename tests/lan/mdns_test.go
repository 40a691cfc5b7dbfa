// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lan

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/mdns"
	"nvpair/tests/harness"
)

// atOnce bounds what needs no question, on a busy machine.
const atOnce = 2 * time.Second

func addrs(list ...string) []netip.Addr {
	var got []netip.Addr
	for _, s := range list {
		got = append(got, netip.MustParseAddr(s))
	}
	return got
}

// twoOnABridge are two hosts that can hear each other.
func twoOnABridge(t *testing.T) (bridge *harness.Bridge, first, second *harness.Host) {
	t.Helper()
	bridge = harness.NewBridge(t)
	first, second = harness.NewHost(t, "alpha"), harness.NewHost(t, "beta")
	bridge.Attach(first, "192.0.2.1/24")
	bridge.Attach(second, "192.0.2.2/24")
	return bridge, first, second
}

func TestTwoHostsSeeEachOther(t *testing.T) {
	_, first, second := twoOnABridge(t)
	a := startPeer(t, first, "-instance", "alpha", "-port", "8080", "-txt", "v=1")
	b := startPeer(t, second, "-instance", "Béla's 2.0", "-port", "8081")
	s := b.await("alpha", atOnce, here("alpha"))
	require.Equal(t, mdns.Sighting{Instance: "alpha", Host: "alpha.local", Port: 8080, TXT: []string{"v=1"},
		Addrs: addrs("192.0.2.1"), Interface: s.Interface, Source: netip.MustParseAddr("192.0.2.1"), TTL: 2 * time.Minute}, s)
	require.NotZero(t, s.Interface)
	s = a.await("beta", atOnce, here("Béla's 2.0"))
	require.Equal(t, "Béla's 2.0.local", s.Host)
	require.Empty(t, s.TXT)
	a.await("itself", atOnce, here("alpha"))

	a.tell("txt v=2 more")
	b.await("the new text", atOnce, func(s mdns.Sighting) bool { return slices.Equal(s.TXT, []string{"v=2", "more"}) })
	a.end()
	b.await("goodbye", atOnce, func(s mdns.Sighting) bool { return s.Instance == "alpha" && s.Goodbye })
}

func TestAHostThatWasCutOffIsSeenAgain(t *testing.T) {
	bridge, first, second := twoOnABridge(t)
	startPeer(t, first, "-instance", "alpha")
	b := startPeer(t, second, "-instance", "beta")
	b.await("alpha", atOnce, here("alpha"))
	bridge.Cut(first)
	for range 2 { // what was under way shows up in the first round
		b.forget()
		b.await("itself", patience, here("beta"))
	}
	require.False(t, slices.ContainsFunc(b.sightings(), here("alpha")))
	bridge.Heal(first)
	b.await("alpha again", patience, here("alpha"))
}

func TestInterfacesComeAndGoWhileItRuns(t *testing.T) {
	left, right := harness.NewBridge(t), harness.NewBridge(t)
	alpha, onLeft, onRight := harness.NewHost(t, "alpha"), harness.NewHost(t, "left"), harness.NewHost(t, "right")
	left.Attach(onLeft, "192.0.2.2/24")
	right.Attach(onRight, "198.51.100.2/24")
	a := startPeer(t, alpha, "-instance", "alpha", "-poll", "200ms") // has no interface yet
	l, r := startPeer(t, onLeft, "-instance", "left"), startPeer(t, onRight, "-instance", "right")

	left.Attach(alpha, "192.0.2.1/24")
	require.Equal(t, addrs("192.0.2.1"), l.await("alpha on the left", patience, here("alpha")).Addrs)
	a.await("left", patience, here("left"))

	right.Attach(alpha, "198.51.100.1/24")
	require.Equal(t, addrs("198.51.100.1"), r.await("alpha on the right", patience, here("alpha")).Addrs)
	a.await("right", patience, here("right"))

	l.forget()
	alpha.IP("addr del 192.0.2.1/24 dev eth0", "addr add 192.0.2.7/24 dev eth0")
	l.await("the new address", patience, func(s mdns.Sighting) bool { return slices.Equal(s.Addrs, addrs("192.0.2.7")) })

	left.Detach(alpha)
	a.AwaitStderr(`links changed.* links=1\n(?s:.*)links changed.* links=2\n(?s:.*)links changed.* links=1\n`, patience)
	left.Attach(alpha, "192.0.2.8/24") // another interface of the same name
	l.await("alpha back on the left", patience, func(s mdns.Sighting) bool { return slices.Equal(s.Addrs, addrs("192.0.2.8")) })
	a.forget()
	a.await("left", patience, here("left"))
	a.await("right", patience, here("right"))
}

func TestAChangeOfTheNetworkIsNoticedWhenToldOf(t *testing.T) {
	bridge, alpha, beta := twoOnABridge(t)
	bridge.Detach(alpha)
	a := startPeer(t, alpha, "-instance", "alpha") // polls once in a minute
	b := startPeer(t, beta)
	bridge.Attach(alpha, "192.0.2.1/24")
	a.tell("changed")
	b.await("alpha", patience, here("alpha"))
}

func TestChangesOfTheNetworkAreNoticedWithoutPolling(t *testing.T) {
	bridge, alpha, beta := twoOnABridge(t)
	bridge.Detach(alpha)
	a := startPeer(t, alpha, "-instance", "alpha", "-watch")
	b := startPeer(t, beta)
	bridge.Attach(alpha, "192.0.2.1/24")
	b.await("alpha", patience, here("alpha"))
	a.AwaitStderr(`links changed.* links=1\n`, patience)

	b.forget()
	alpha.IP("addr del 192.0.2.1/24 dev eth0", "addr add 192.0.2.7/24 dev eth0")
	b.await("the new address", patience, func(s mdns.Sighting) bool { return slices.Equal(s.Addrs, addrs("192.0.2.7")) })

	b.forget()
	alpha.IP("link set eth0 down", "link set eth0 up") // as after sleep
	b.await("alpha again", patience, here("alpha"))
}

func TestTwoProgramsOnOneHostSeeEachOther(t *testing.T) {
	bridge := harness.NewBridge(t)
	h := harness.NewHost(t, "alpha")
	bridge.Attach(h, "192.0.2.1/24")
	first := startPeer(t, h, "-instance", "alpha", "-port", "1")
	second := startPeer(t, h, "-instance", "alpha", "-port", "2")
	for _, p := range []*mdnsPeer{first, second} {
		p.await("first", atOnce, func(s mdns.Sighting) bool { return s.Port == 1 })
		p.await("second", atOnce, func(s mdns.Sighting) bool { return s.Port == 2 })
	}
	second.end()
	first.await("goodbye", atOnce, func(s mdns.Sighting) bool { return s.Goodbye })
	first.forget()
	first.await("the remaining one", patience, here("alpha"))
	first.end()
	require.NotContains(t, first.Stderr(), "level=WARN")
}
