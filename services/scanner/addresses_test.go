// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAddressesAreRanked(t *testing.T) {
	for _, tt := range []struct{ in, want string }{ // v in front is a virtual interface
		{"", ""},
		{"127.0.0.1 169.254.1.1 172.17.0.1 0.0.0.0 224.0.0.1 fe80::1 2001:db8::1", ""}, // DI-20
		{"172.16.0.1 172.18.0.1", "172.16.0.1 172.18.0.1"},
		{"8.8.8.8 100.64.0.1 192.168.1.9", "192.168.1.9 8.8.8.8 100.64.0.1"}, // DI-24
		{"192.168.0.1 172.16.0.1 10.0.0.1", "10.0.0.1 172.16.0.1 192.168.0.1"},
		{"10.0.0.9 10.0.0.10", "10.0.0.10 10.0.0.9"}, // as strings (DI-23)
		{"v10.0.0.1 8.8.8.8", "8.8.8.8"},             // DI-25
		{"v10.0.0.1", "10.0.0.1"},
		{"v10.0.0.1 10.0.0.1 10.0.0.2", "10.0.0.1 10.0.0.2"}, // DI-27
		{"10.0.0.5 10.0.0.4 10.0.0.3 10.0.0.2 10.0.0.1", "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4"},
	} {
		var all []candidate
		for text := range strings.FieldsSeq(tt.in) {
			bare, virtual := strings.CutPrefix(text, "v")
			all = append(all, candidate{addr: netip.MustParseAddr(bare), virtual: virtual})
		}
		for range 2 {
			require.Equal(t, tt.want, strings.Join(rank(all), " "), tt.in)
			slices.Reverse(all) // the order of the interfaces does not matter
		}
	}
}

func TestVirtualInterfacesAreKnownByName(t *testing.T) {
	for _, name := range []string{"docker0", "br-1a2b", "veth12", "vEthernet (WSL)", "tailscale0", "utun3", "wg0", "virbr0"} {
		require.True(t, isVirtual(name), name)
	}
	for _, name := range []string{"eth0", "enp3s0", "wlan0", "en0", "Wi-Fi", "Ethernet 2", "bond0"} {
		require.False(t, isVirtual(name), name)
	}
}

func TestThisMachineHasPublishableAddressesOrNone(t *testing.T) {
	all, err := localCandidates(clues{route: routeSource()})
	require.NoError(t, err)
	ips := rank(all)
	require.LessOrEqual(t, len(ips), maxAddresses)
	for _, ip := range ips {
		require.True(t, publishable(netip.MustParseAddr(ip)), ip)
	}
}
