// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/tests/harness"
)

// Such are the guest networks of many access points.
func TestNodesThatNeverHeardEachOtherStayByAddress(t *testing.T) {
	t.Parallel()
	bridge := harness.NewBridge(t)
	var nodes []*node
	for i, name := range []string{"alpha", "beta"} {
		h := harness.NewHost(t, name)
		bridge.Attach(h, []string{"192.168.7.1/24", "192.168.7.2/24"}[i])
		bridge.BlockMulticast(h, true)
		nodes = append(nodes, startNode(t, h))
	}
	a, b := nodes[0], nodes[1]
	a.add("192.168.7.2", "beta")
	b.add("192.168.7.1", "alpha")
	a.findsGiven("beta", "to be beta", isPeer(b.uuid()))
	b.findsGiven("alpha", "to be alpha", isPeer(a.uuid()))
	began := time.Now()
	eventually(t, 2*evictWithin, "more than a minute of silence to pass", func() bool {
		require.Equal(t, available{ID: "beta", HostUUID: b.uuid(), IPAddress: "192.168.7.2", Port: 14318}, a.knows("beta"))
		require.Equal(t, available{ID: "alpha", HostUUID: a.uuid(), IPAddress: "192.168.7.1", Port: 14318}, b.knows("alpha"))
		return time.Since(began) > 90*time.Second
	})
	for _, n := range nodes {
		require.NotContains(t, n.proc.Stderr(), "node is gone", n.Name)
	}
}
