// SPDX-License-Identifier: Apache-2.0

//go:build linux

package harness

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestARouterJoinsTwoBridges(t *testing.T) {
	left, right := NewBridge(t), NewBridge(t)
	first, second, router := NewHost(t, "alpha"), NewHost(t, "beta"), NewRouter(t, "router")
	left.Attach(first, "192.0.2.1/24")
	right.Attach(second, "198.51.100.1/24")
	left.Attach(router, "192.0.2.254/24")
	right.Attach(router, "198.51.100.254/24")
	first.IP("route add default via 192.0.2.254")
	second.IP("route add default via 198.51.100.254")
	require.True(t, hears(t, first, second, "198.51.100.1", patience))
	require.True(t, hears(t, second, first, "192.0.2.1", patience))
}

func TestAHostHasNamesOfItsOwn(t *testing.T) {
	h, other := NewHost(t, "alpha"), NewHost(t, "beta")
	h.SetNames(map[string]string{"desk": "192.0.2.7"})
	reader := h.Start(h.Command("sh", "-c", "while read line; do grep desk /etc/hosts; done"))
	defer reader.Kill()
	ask := func() string {
		t.Helper()
		_, err := reader.Stdin.WriteString("again\n")
		require.NoError(t, err)
		buffer := make([]byte, 100)
		n, err := reader.Stdout.Read(buffer)
		require.NoError(t, err)
		return string(buffer[:n])
	}
	require.Equal(t, "192.0.2.7 desk\n", ask())
	h.SetNames(map[string]string{"desk": "192.0.2.8"})
	require.Equal(t, "192.0.2.8 desk\n", ask(), "a program that runs sees the change")

	out, err := other.Command("cat", "/etc/hosts").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NotContains(t, string(out), "desk")
	out, err = h.CommandAs(Nobody, "sh", "-c", "id -u && cat /etc/hosts").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.True(t, strings.HasPrefix(string(out), "65534\n") && strings.Contains(string(out), "desk"), "%s", out)
}
