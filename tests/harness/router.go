// SPDX-License-Identifier: Apache-2.0

//go:build linux

package harness

import (
	"os"
	"testing"
)

// NewRouter makes a host that forwards unicast packets of IPv4 and IPv6 between the bridges that it is attached to.
// Multicast ends at it, as at any router.
func NewRouter(t testing.TB, name string) *Host {
	t.Helper()
	h := NewHost(t, name)
	err := h.Do(func() error {
		// The kernel shows each thread the settings of its own network namespace.
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
			return err
		}
		return os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0)
	})
	if err != nil {
		t.Fatalf("make host %s a router: %v", name, err)
	}
	return h
}
