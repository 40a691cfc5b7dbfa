// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lan

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/tests/harness"
)

// noticedWithin bounds the time until a node notices that its interfaces are others.
const noticedWithin = 30 * time.Second

func TestAMachineGainsASecondNetworkAndLosesTheFirst(t *testing.T) {
	t.Parallel()
	left, right := harness.NewBridge(t), harness.NewBridge(t)
	alpha, beta, gamma := harness.NewHost(t, "alpha"), harness.NewHost(t, "beta"), harness.NewHost(t, "gamma")
	left.Attach(alpha, "192.168.1.1/24")
	left.Attach(beta, "192.168.1.2/24")
	right.Attach(gamma, "192.168.2.2/24")
	a, b, c := startNode(t, alpha), startNode(t, beta), startNode(t, gamma)
	a.sees(appearWithin, "alpha", "beta")
	c.sees(appearWithin, "gamma")

	right.Attach(alpha, "192.168.2.1/24")
	a.sees(appearWithin+noticedWithin, "alpha", "beta", "gamma")
	c.sees(appearWithin, "alpha", "gamma") // not beta: alpha is no router
	eventually(t, appearWithin, "both addresses of alpha in gamma's list", func() bool {
		return slices.Equal([]string{"192.168.1.1", "192.168.2.1"}, slices.Sorted(slices.Values(c.knows("alpha").IPAddresses)))
	})
	require.Equal(t, "192.168.2.2", a.knows("gamma").IPAddress)
	require.Equal(t, "192.168.1.1", b.knows("alpha").IPAddress)
	require.Equal(t, []string{"alpha", "beta"}, b.names())

	left.Detach(alpha)
	eventually(t, noticedWithin+appearWithin, "the remaining address of alpha in gamma's list", func() bool {
		n := c.knows("alpha")
		return n.IPAddress == "192.168.2.1" && len(n.IPAddresses) == 0
	})
	b.sees(evictWithin, "beta")
	a.sees(evictWithin, "alpha", "gamma")
	c.sees(appearWithin, "alpha", "gamma")
}
