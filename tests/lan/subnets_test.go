// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lan

import (
	"fmt"
	"testing"

	"nvpair/tests/harness"
)

// subnets are two LANs that a router joins. It forwards unicast only.
type subnets struct {
	t           *testing.T
	left, right *harness.Bridge
	router      *harness.Host // its interface on the left is eth0, that on the right eth1
}

func newSubnets(t *testing.T) *subnets {
	t.Helper()
	s := &subnets{t: t, left: harness.NewBridge(t), right: harness.NewBridge(t), router: harness.NewRouter(t, "router")}
	s.left.Attach(s.router, "192.168.1.254/24")
	s.right.Attach(s.router, "192.168.2.254/24")
	s.router.IP("addr add fd00:1::fe/64 dev eth0 nodad", "addr add fd00:2::fe/64 dev eth1 nodad")
	return s
}

// onLeft makes a machine with the addresses 192.168.1.<last> and fd00:1::<last>.
func (s *subnets) onLeft(name string, last int) *harness.Host {
	return s.machine(s.left, 1, name, last)
}

// onRight makes one with 192.168.2.<last> and fd00:2::<last>.
func (s *subnets) onRight(name string, last int) *harness.Host {
	return s.machine(s.right, 2, name, last)
}

func (s *subnets) machine(bridge *harness.Bridge, net int, name string, last int) *harness.Host {
	s.t.Helper()
	h := harness.NewHost(s.t, name)
	bridge.Attach(h, fmt.Sprintf("192.168.%d.%d/24", net, last))
	h.IP(fmt.Sprintf("addr add fd00:%d::%d/64 dev eth0 nodad", net, last),
		fmt.Sprintf("route add 192.168.0.0/16 via 192.168.%d.254", net),
		fmt.Sprintf("route add fd00::/16 via fd00:%d::fe", net))
	return h
}
