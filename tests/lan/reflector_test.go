// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lan

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/ipv4"

	"nvpair/internal/mdns"
	"nvpair/tests/harness"
)

// startReflector starts a stand-in for Avahi's reflector on a router: it passes multicast DNS from each of its links to
// the other. As Avahi's, it passes only what was sent from port 5353, sends from that port itself, at its own address of
// the link, and never passes on what it sent.
func startReflector(t *testing.T, router *harness.Host) {
	t.Helper()
	var p *ipv4.PacketConn
	var links []*net.Interface
	own := map[string]bool{}
	require.NoError(t, router.Do(func() error {
		config := net.ListenConfig{Control: reuse}
		conn, err := config.ListenPacket(context.Background(), "udp4", "0.0.0.0:5353")
		if err != nil {
			return err
		}
		p = ipv4.NewPacketConn(conn)
		for _, name := range []string{"eth0", "eth1"} {
			link, err := net.InterfaceByName(name)
			if err != nil {
				return err
			}
			addrs, err := link.Addrs()
			if err != nil {
				return err
			}
			for _, a := range addrs {
				own[a.(*net.IPNet).IP.String()] = true
			}
			if err := p.JoinGroup(link, group); err != nil {
				return err
			}
			links = append(links, link)
		}
		return errors.Join(p.SetControlMessage(ipv4.FlagInterface|ipv4.FlagDst, true), p.SetMulticastLoopback(false),
			p.SetMulticastTTL(255))
	}))
	var running sync.WaitGroup
	t.Cleanup(func() {
		_ = p.Close()
		running.Wait()
	})
	running.Go(func() { // ends with the socket
		buffer := make([]byte, 9000)
		for {
			n, cm, from, err := p.ReadFrom(buffer)
			if err != nil {
				return
			}
			source := from.(*net.UDPAddr)
			if source.Port != mdns.Port || own[source.IP.String()] || cm == nil || !cm.Dst.IsMulticast() {
				continue
			}
			for _, link := range links {
				if link.Index == cm.IfIndex {
					continue
				}
				if err := p.SetMulticastInterface(link); err != nil {
					t.Errorf("choose %s: %v", link.Name, err)
				}
				if _, err := p.WriteTo(buffer[:n], nil, group); err != nil && !errors.Is(err, net.ErrClosed) {
					t.Errorf("pass a packet on to %s: %v", link.Name, err)
				}
			}
		}
	})
}

func TestAReflectorJoinsTwoSubnets(t *testing.T) {
	t.Parallel()
	net := newSubnets(t)
	nodes := []*node{startNode(t, net.onLeft("alpha", 1)), startNode(t, net.onLeft("beta", 2)),
		startNode(t, net.onRight("gamma", 1)), startNode(t, net.onRight("delta", 2))}
	nodes[1].sees(appearWithin, "alpha", "beta")
	nodes[3].sees(appearWithin, "delta", "gamma")
	startReflector(t, net.router)
	for _, n := range nodes {
		n.sees(appearWithin, "alpha", "beta", "delta", "gamma")
		n.knowsPorts()
		for _, other := range n.nodes() {
			want := map[string]string{"alpha": "192.168.1.1", "beta": "192.168.1.2", "gamma": "192.168.2.1",
				"delta": "192.168.2.2"}[other.ID]
			require.Equal(t, want, other.IPAddress, "%s as %s knows it", other.ID, n.Name)
		}
	}
	require.NoError(t, nodes[3].proc.Stdin.Close())
	require.Equal(t, 0, nodes[3].proc.AwaitExit(goneWithin))
	for _, n := range nodes[:3] {
		n.sees(appearWithin, "alpha", "beta", "gamma") // its goodbye was reflected, too
	}
}
