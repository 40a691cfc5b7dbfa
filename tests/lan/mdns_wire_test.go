// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lan

import (
	"net"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/ipv4"

	"nvpair/internal/mdns"
	"nvpair/tests/harness"
)

var group = net.UDPAddrFromAddrPort(mdns.Group())

// groupSocket is a socket of a host's eth0 that hears the group, as a foreign listener would open it.
func groupSocket(t *testing.T, h *harness.Host) *net.UDPConn {
	t.Helper()
	var conn *net.UDPConn
	require.NoError(t, h.Do(func() error {
		eth0, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		conn, err = net.ListenMulticastUDP("udp4", eth0, group)
		return err
	}))
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestPacketsAreSentAsMulticastDNSWantsThem(t *testing.T) {
	_, first, second := twoOnABridge(t)
	p := ipv4.NewPacketConn(groupSocket(t, second))
	require.NoError(t, p.SetControlMessage(ipv4.FlagTTL|ipv4.FlagDst, true))
	peer := startPeer(t, first, "-instance", "alpha")
	peer.await("itself", patience, here("alpha"))
	peer.end()
	require.NoError(t, p.SetReadDeadline(time.Now().Add(patience)))

	kinds := map[string]bool{}
	buffer := make([]byte, 9000)
	for !kinds["goodbye"] {
		n, cm, from, err := p.ReadFrom(buffer)
		require.NoError(t, err)
		require.Equal(t, "192.0.2.1:5353", from.String())
		require.Equal(t, 255, cm.TTL)
		require.True(t, cm.Dst.Equal(group.IP))
		m := new(dns.Msg)
		require.NoError(t, m.Unpack(buffer[:n]))
		require.Zero(t, m.Id)
		switch {
		case m.Response && m.Answer[0].Header().Ttl == 0:
			kinds["goodbye"] = true
		case m.Response:
			kinds["response"] = true
		default:
			kinds["query"] = true
		}
	}
	require.True(t, kinds["query"] && kinds["response"])
}

func TestAPlainResolverFindsAService(t *testing.T) {
	_, first, second := twoOnABridge(t)
	startPeer(t, first, "-instance", "alpha", "-port", "8080")
	var socket net.PacketConn
	require.NoError(t, second.Do(func() error {
		eth0, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		socket, err = net.ListenPacket("udp4", "192.0.2.2:0")
		if err != nil {
			return err
		}
		return ipv4.NewPacketConn(socket).SetMulticastInterface(eth0)
	}))
	defer socket.Close()

	query := new(dns.Msg)
	query.SetQuestion("_peer._tcp.local.", dns.TypePTR)
	packet, err := query.Pack()
	require.NoError(t, err)
	buffer := make([]byte, 9000)
	var n int
	harness.Eventually(t, patience, "an answer", func() bool {
		_, err := socket.WriteTo(packet, group)
		require.NoError(t, err)
		require.NoError(t, socket.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
		var from net.Addr
		n, from, err = socket.ReadFrom(buffer)
		return err == nil && from.String() == "192.0.2.1:5353"
	})
	answer := new(dns.Msg)
	require.NoError(t, answer.Unpack(buffer[:n]))
	require.Equal(t, query.Id, answer.Id)
	require.Equal(t, query.Question, answer.Question)
	require.Equal(t, "alpha._peer._tcp.local.", answer.Answer[0].(*dns.PTR).Ptr)
	require.Len(t, answer.Extra, 3)
}
