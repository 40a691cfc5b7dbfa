// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/mdns"
	"nvpair/shared/discovery"
)

func TestANodeAppearsWithWhatItSaysOfItself(t *testing.T) {
	inLAN(t, func(l *lan) {
		l.up("10.0.0.2", other)
		_, leave, _ := l.node("beta", "10.0.0.2", other)
		n, took := l.after(discovery.NotifyNodeDiscovered, other)
		require.LessOrEqual(l.t, took, 3*time.Second)
		require.Equal(l.t, []any{"beta", "10.0.0.2", []string{"10.0.0.2"}, map[string]discovery.Service{"ni": {Port: 14318}}, false},
			[]any{n.Name, n.IP, n.IPs, n.Services, n.Trusted})
		n, _ = l.after(discovery.NotifyNodeUpdated, other)
		require.JSONEq(l.t, `[{"name":"gpu","vram_bytes":8,"utilization_percent":40}]`, string(n.GPUs))
		l.down("10.0.0.2")
		leave()
		_, took = l.after(discovery.NotifyNodeRemoved, other)
		require.LessOrEqual(l.t, took, 2*time.Second, "one that left in order is gone at once")
	})
}

// A node that stops in order withdraws its services one by one and then says
// goodbye.
func TestANodeThatWithdrewItsServicesFirstIsGoneAtOnceToo(t *testing.T) {
	inLAN(t, func(l *lan) {
		l.up("10.0.0.2", other)
		p, leave, _ := l.node("beta", "10.0.0.2", other)
		l.after(discovery.NotifyNodeUpdated, other)
		l.down("10.0.0.2")
		require.NoError(l.t, p.SetTXT([]string{"v=1", "uuid=" + other, "ip=10.0.0.2"}))
		l.after(discovery.NotifyNodeUpdated, other)
		leave()
		_, took := l.after(discovery.NotifyNodeRemoved, other)
		require.LessOrEqual(l.t, took, 2*time.Second)
	})
}

func TestAForgedGoodbyeRemovesNobody(t *testing.T) {
	inLAN(t, func(l *lan) {
		l.up("10.0.0.2", other)
		_, leave, _ := l.node("beta", "10.0.0.2", other)
		l.after(discovery.NotifyNodeUpdated, other)
		leave() // its node-info answers on
		l.without(discovery.NotifyNodeRemoved, 5*time.Minute)
	})
}

func TestAKilledNodeIsGoneAfterAMinute(t *testing.T) {
	inLAN(t, func(l *lan) {
		l.up("10.0.0.2", other)
		_, _, crash := l.node("beta", "10.0.0.2", other)
		l.after(discovery.NotifyNodeDiscovered, other)
		l.down("10.0.0.2")
		crash()
		_, took := l.after(discovery.NotifyNodeRemoved, other)
		require.Greater(l.t, took, 50*time.Second)
		require.Less(l.t, took, 75*time.Second)
	})
}

func TestANodeThatIsNotHeardButAnswersStays(t *testing.T) {
	inLAN(t, func(l *lan) {
		l.up("10.0.0.2", other)
		_, _, crash := l.node("beta", "10.0.0.2", other)
		l.after(discovery.NotifyNodeDiscovered, other)
		crash() // multicast is blocked for ever
		l.without(discovery.NotifyNodeRemoved, 10*time.Minute)
		l.down("10.0.0.2")
		l.up("10.0.0.2", "somebody else")
		l.after(discovery.NotifyNodeRemoved, other)
	})
}

func TestAChangedRecordIsTakenAtOnce(t *testing.T) {
	inLAN(t, func(l *lan) {
		p, _, _ := l.node("beta", "10.0.0.2", other)
		l.after(discovery.NotifyNodeDiscovered, other)
		require.NoError(l.t, p.SetTXT(append(l.record("10.0.0.2", other), "ol=11434")))
		n, took := l.after(discovery.NotifyNodeUpdated, other)
		require.LessOrEqual(l.t, took, 2*time.Second)
		require.Equal(l.t, 11434, n.Services["ol"].Port)
	})
}

func TestTwoNodesOfOneNameAreTwo(t *testing.T) { // DI-71
	inLAN(t, func(l *lan) {
		l.node("beta", "10.0.0.2", other)
		l.after(discovery.NotifyNodeDiscovered, other)
		third := strings.Replace(other, "9", "8", 1)
		l.node("beta", "10.0.0.3", third)
		l.after(discovery.NotifyNodeDiscovered, third)
		l.without(discovery.NotifyNodeRemoved, 20*time.Second)
	})
}

// Anybody can send a record, but only the node itself answers as itself.
func TestAForgedRecordMovesNobody(t *testing.T) {
	inLAN(t, func(l *lan) {
		l.up("10.0.0.2", other)
		l.node("beta", "10.0.0.2", other)
		l.after(discovery.NotifyNodeUpdated, other)
		l.up("10.0.0.66", "the forger")
		p, _, _ := l.node("beta", "10.0.0.66", "the forger")
		l.after(discovery.NotifyNodeDiscovered, "the forger")
		require.NoError(l.t, p.SetTXT([]string{"uuid=" + other, "ip=10.0.0.66", "ni=1"}))
		l.without(`"hostUuid":"`+other+`","name":"beta","ip":"10.0.0.66"`, time.Minute)
		p.Withdraw()
		l.without(discovery.NotifyNodeRemoved+`","params":{"node":{"hostUuid":"`+other, time.Minute)
	})
}

func TestANodeThatMovesIsFollowed(t *testing.T) {
	inLAN(t, func(l *lan) {
		l.up("10.0.0.2", other)
		p, _, _ := l.node("beta", "10.0.0.2", other)
		l.after(discovery.NotifyNodeUpdated, other)
		l.down("10.0.0.2")
		l.up("10.0.0.22", other)
		require.NoError(l.t, p.SetTXT(l.record("10.0.0.22", other)))
		for {
			if n, took := l.after(discovery.NotifyNodeUpdated, other); n.IP == "10.0.0.22" {
				require.Less(l.t, took, 15*time.Second)
				return
			}
		}
	})
}

func TestRecordsCannotMakeANodeAskItself(t *testing.T) {
	for _, ip := range []string{
		"0.0.0.0", "::", "::ffff:0.0.0.0", "127.0.0.1", "::1", "::ffff:127.0.0.1", "224.0.0.1", "255.255.255.255", "169.254.1.1", "fe80::1", "ff02::1",
	} {
		require.Empty(t, literals([]string{ip}), ip)
		p := &peer{now: []netip.Addr{netip.MustParseAddr(ip)}}
		require.Empty(t, p.candidates(func(netip.Addr) bool { return false }), ip)
	}
}

func TestAMachineThatWasSetUpAnewReplacesItsOldEntry(t *testing.T) { // DI-78, DI-79
	for name, stillThere := range map[string]bool{"the old one is gone": false, "the old one answers": true} {
		t.Run(name, func(t *testing.T) {
			inLAN(t, func(l *lan) {
				l.up("10.0.0.2", other)
				_, _, crash := l.node("beta", "10.0.0.2", other)
				l.after(discovery.NotifyNodeDiscovered, other)
				l.without(discovery.NotifyNodeRemoved, 6*time.Minute)
				anew := strings.Replace(other, "9", "8", 1)
				at := "10.0.0.2"
				if stillThere {
					at = "10.0.0.3"
				} else {
					crash()
					l.down(at)
				}
				l.up(at, anew)
				l.node("beta", at, anew)
				if stillThere {
					l.without(discovery.NotifyNodeRemoved, 6*time.Minute)
					return
				}
				_, took := l.after(discovery.NotifyNodeRemoved, other)
				require.Less(l.t, took, 20*time.Second, "not after a minute of misses")
			})
		})
	}
}

func TestWhatTheLinkDoesNotTakeIsSentLater(t *testing.T) {
	var got []string
	full := true
	o := newOwed(func(method string, params any) bool {
		if !full {
			got = append(got, fmt.Sprint(method, params))
		}
		return !full
	})
	o.emit("a", "discovered", 1)
	o.emit("b", "discovered", 2)
	o.emit("a", "removed", 3)
	full = false
	o.emit("a", "discovered", 4) // must not pass what waits
	require.Empty(t, got)
	o.emit("c", "discovered", 5)
	o.settle()
	require.ElementsMatch(t, []string{"discovered5", "discovered4", "discovered2"}, got)
}

func TestTheHardwareOfOthersIsBounded(t *testing.T) {
	var gpus []string
	for range 1000 {
		gpus = append(gpus, `{"name":"`+strings.Repeat("x", 1000)+`","utilization_percent":400,"junk":{"a":[1]}}`)
	}
	i, err := parseInventory([]byte(`{"GPUs":[` + strings.Join(gpus, ",") + `],"cpu":{"name":"` + strings.Repeat("é", 5000) + `"},"hostUuid":"u"}`))
	require.NoError(t, err)
	i = i.described()
	require.Less(t, len(i.gpus)+len(i.cpu), 8<<10)
	require.EqualValues(t, 100, i.use)
	_, err = parseInventory([]byte(`{"GPUs":{}}`))
	require.Error(t, err)
}

func TestThisMachinesAddressIsNoOtherNodes(t *testing.T) { // DEC-69
	own := map[netip.Addr]bool{netip.MustParseAddr("10.0.0.1"): true}
	p := &peer{
		rec: record{ips: []string{"10.0.0.1", "127.0.0.1", "10.0.0.9"}},
		now: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("2001:db8::9"), netip.MustParseAddr("8.8.8.8")},
	}
	isOwn := func(a netip.Addr) bool { return a.IsLoopback() || own[a] }
	require.Equal(t, []string{"10.0.0.9", "8.8.8.8", "2001:db8::9"}, p.candidates(isOwn))
}

func TestAFloodOfRecordsPushesOutNobody(t *testing.T) {
	inLAN(t, func(l *lan) {
		l.up("10.0.0.2", other)
		l.node("beta", "10.0.0.2", other)
		l.after(discovery.NotifyNodeUpdated, other)
		flood := l.net.Host()
		flood.Attach("eth0", "lan", "10.0.0.66/24")
		conn := mdns.New(mdns.Config{Network: flood})
		p, err := conn.Publish(mdns.Service{Instance: "flood", Type: serviceType, Host: "flood", Port: srvPort, TXT: []string{"v=1"}})
		require.NoError(l.t, err)
		ctx, cancel := context.WithCancel(l.t.Context())
		var running sync.WaitGroup
		running.Go(func() { conn.Run(ctx) })
		for i := range 1000 {
			require.NoError(l.t, p.SetTXT([]string{fmt.Sprintf("uuid=forged-%d", i), "ip=10.0.0.66"}))
			l.without(discovery.NotifyNodeRemoved+`","params":{"node":{"hostUuid":"`+other, 1100*time.Millisecond)
		}
		cancel()
		running.Wait()
		var list discovery.Directory
		_ = l.Conn.SetReadDeadline(time.Time{})
		l.Send(`{"jsonrpc":"2.0","id":7,"method":"discovery:get-nodes","params":{}}`)
		for {
			line, ok := l.within(time.Minute)
			require.True(l.t, ok)
			if strings.HasPrefix(line, `{"jsonrpc":"2.0","id":7,`) {
				var answer struct{ Result discovery.Directory }
				require.NoError(l.t, json.Unmarshal([]byte(line), &answer))
				list = answer.Result
				break
			}
		}
		require.LessOrEqual(l.t, len(list.Nodes), maxPeers+1)
		found := false
		for _, n := range list.Nodes {
			found = found || n.HostUUID == other
		}
		require.True(l.t, found, "the real node stays")
	})
}

func TestANodeGivenByAddressLivesByItsAnswers(t *testing.T) { // DEC-65
	inLAN(t, func(l *lan) {
		l.up("192.0.2.9", other)
		l.Notify(discovery.MethodStaticNode, `{"hostUuid":"`+other+`","name":"far","addresses":["192.0.2.9"],"services":{"ni":{"port":14318}}}`)
		n, _ := l.after(discovery.NotifyNodeDiscovered, other)
		require.Equal(l.t, "192.0.2.9", n.IP)
		l.without(discovery.NotifyNodeRemoved, 10*time.Minute)
		l.down("192.0.2.9")
		l.after(discovery.NotifyNodeRemoved, other)
		l.up("192.0.2.9", other)
		_, took := l.after(discovery.NotifyNodeDiscovered, other)
		require.Less(l.t, took, 15*time.Second)
		l.Notify(discovery.MethodStaticNodeRemoved, `{"hostUuid":"`+other+`"}`)
		l.down("192.0.2.9")
		l.after(discovery.NotifyNodeRemoved, other)
	})
}
