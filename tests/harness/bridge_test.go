// SPDX-License-Identifier: Apache-2.0

//go:build linux

package harness

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hears reports whether a datagram gets from one host to an address of another, for which it tries until d is over.
func hears(t *testing.T, from, to *Host, addr string, d time.Duration) bool {
	t.Helper()
	var ln net.PacketConn
	require.NoError(t, to.Do(func() (err error) {
		ln, err = net.ListenPacket("udp4", net.JoinHostPort(addr, "7000"))
		return err
	}))
	defer ln.Close()
	conn, err := from.Dial("udp4", net.JoinHostPort(addr, "7000"))
	require.NoError(t, err)
	defer conn.Close()
	return poll(d, func() bool {
		_, _ = conn.Write([]byte("x")) // fails while the neighbour is unknown
		_ = ln.SetReadDeadline(time.Now().Add(pollEvery))
		n, _, err := ln.ReadFrom(make([]byte, 9))
		return err == nil && n == 1
	})
}

// interfacesOf returns the names of a host's interfaces.
func interfacesOf(t *testing.T, h *Host) []string {
	t.Helper()
	var names []string
	require.NoError(t, h.Do(func() error {
		list, err := net.Interfaces()
		for _, i := range list {
			names = append(names, i.Name)
		}
		return err
	}))
	return names
}

func TestHostsOnABridgeReachEachOther(t *testing.T) {
	b := NewBridge(t)
	first, second := NewHost(t, "alpha"), NewHost(t, "beta")
	require.Equal(t, "eth0", b.Attach(first, "192.0.2.1/24"))
	require.Equal(t, "eth0", b.Attach(second, "192.0.2.2/24"))
	require.True(t, hears(t, first, second, "192.0.2.2", patience))
	require.True(t, hears(t, second, first, "192.0.2.1", patience))

	b.Cut(second)
	require.False(t, hears(t, first, second, "192.0.2.2", 200*time.Millisecond))
	require.Contains(t, interfacesOf(t, second), "eth0")
	b.Heal(second)
	require.True(t, hears(t, first, second, "192.0.2.2", patience))

	b.Detach(second)
	require.NotContains(t, interfacesOf(t, second), "eth0")
	require.Equal(t, "eth0", b.Attach(second, "192.0.2.3/24"))
	require.True(t, hears(t, first, second, "192.0.2.3", patience))
}

func TestAHostCanBeOnSeveralBridges(t *testing.T) {
	left, right := NewBridge(t), NewBridge(t)
	hosts := map[string]*Host{"left": NewHost(t, "left"), "middle": NewHost(t, "middle"), "right": NewHost(t, "right")}
	left.Attach(hosts["left"], "192.0.2.1/24")
	require.Equal(t, "eth0", left.Attach(hosts["middle"], "192.0.2.2/24"))
	require.Equal(t, "eth1", right.Attach(hosts["middle"], "198.51.100.2/24"))
	right.Attach(hosts["right"], "198.51.100.1/24")
	require.True(t, hears(t, hosts["left"], hosts["middle"], "192.0.2.2", patience))
	require.True(t, hears(t, hosts["right"], hosts["middle"], "198.51.100.2", patience))

	err := hosts["left"].Do(func() error {
		_, err := net.Dial("udp4", "198.51.100.1:7000")
		return err
	})
	require.Error(t, err, "there is no route")
}

func TestMisuseOfABridgeSaysSo(t *testing.T) {
	fake := &fakeTB{TB: t}
	b := NewBridge(fake)
	h := NewHost(fake, "alpha")
	fake.run(func() { b.Detach(h) })
	b.Attach(h, "192.0.2.1/24")
	fake.run(func() { b.Attach(h, "192.0.2.1/24") })
	fake.run(func() { h.IP("link set nowhere up") })
	require.Len(t, fake.reports, 3, "%q", fake.reports)
	require.Contains(t, fake.reports[0], "not on the bridge")
	require.Contains(t, fake.reports[1], "already")
	require.Contains(t, fake.reports[2], "nowhere")
	fake.end()
	require.Len(t, fake.reports, 3)
}
