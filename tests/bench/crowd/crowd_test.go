// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"nvpair/internal/mdns"
	"nvpair/internal/mdns/mdnstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	lan      = "lan"
	question = "_nvpair-node._tcp.local."
	stranger = "10.77.0.9:5353"
)

// crowdOf runs members in memory until the end of the test.
func crowdOf(t *testing.T, n int, ask bool) *mdnstest.Network {
	t.Helper()
	network := mdnstest.New()
	host := network.Host()
	host.Attach("eth0", lan, "10.77.0.1/16")
	members, err := membersOf(n, netip.MustParseAddr("10.77.1.0"))
	require.NoError(t, err)
	tap := newTap(host, ask)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = tap.run(ctx, mdns.Interface{Name: "eth0", Index: 1}) })
	for i := range members {
		m := &members[i]
		m.conn = mdns.New(mdns.Config{Network: tap.seat(mdns.Interface{Name: "eth0", Index: 1,
			Prefixes: []netip.Prefix{netip.PrefixFrom(m.addr, 16)}})})
		require.NoError(t, m.start(ctx, &running, ask))
	}
	t.Cleanup(func() { stop(); running.Wait() })
	return network
}

// sent counts the packets since the last call, by sender, that are responses or not.
func sent(t *testing.T, network *mdnstest.Network, responses bool) map[string]int {
	t.Helper()
	by := map[string]int{}
	for _, p := range network.Packets() {
		m := new(dns.Msg)
		require.NoError(t, m.Unpack(p.Data))
		if m.Response == responses && p.Source.String() != stranger {
			by[p.Source.Addr().String()]++
		}
	}
	return by
}

func ask(t *testing.T, network *mdnstest.Network, known ...string) {
	t.Helper()
	m := new(dns.Msg)
	m.Question = []dns.Question{{Name: question, Qtype: dns.TypePTR, Qclass: dns.ClassINET}}
	for _, name := range known {
		rr, err := dns.NewRR(question + " 120 IN PTR " + name + "." + question)
		require.NoError(t, err)
		m.Answer = append(m.Answer, rr)
	}
	b, err := m.Pack()
	require.NoError(t, err)
	network.Inject(lan, netip.MustParseAddrPort(stranger), b)
}

func TestEachMemberAnnouncesItselfAndAnswersForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := crowdOf(t, 3, false)
		<-time.After(5 * time.Second)
		require.Equal(t, map[string]int{"10.77.1.1": 2, "10.77.1.2": 2, "10.77.1.3": 2}, sent(t, network, true))
		<-time.After(time.Minute)
		require.Equal(t, map[string]int{"10.77.1.1": 1, "10.77.1.2": 1, "10.77.1.3": 1}, sent(t, network, true))
		ask(t, network, `crowd-10\.77\.1\.2`, "crowd-10.77.1.2")
		<-time.After(time.Second)
		require.Equal(t, map[string]int{"10.77.1.1": 1, "10.77.1.3": 1}, sent(t, network, true), "one was known")
	})
}

func TestMembersThatAskHearEachOthersQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const members = 20
		network := crowdOf(t, members, true)
		<-time.After(10 * time.Second)
		sent(t, network, false)
		<-time.After(time.Minute)
		sum := 0
		for _, n := range sent(t, network, false) {
			sum += n
		}
		require.InDelta(t, members*60/10, sum, members, "each leaves out every second of its questions")
	})
}

func TestAMembersInventoryIsItsOwn(t *testing.T) {
	first, second := infoOf(1, "a", time.Second), infoOf(1, "a", 2*time.Second)
	require.NotEqual(t, first.GPUs[0].UsePct, second.GPUs[0].UsePct, "each second has news")
	require.True(t, first.TelemetryValid)
	require.Equal(t, int64(250), infoOf(0, "a", 1250*time.Millisecond).AgeMillis)
	_, err := membersOf(maxMembers+1, netip.MustParseAddr("10.77.1.0"))
	require.Error(t, err)
}
