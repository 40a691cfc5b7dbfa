// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lan

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/internal/clustertrust/clustertest"
	"nvpair/shared/discovery"
	"nvpair/tests/harness"
)

// newMember makes a host whose node has an identity in a cluster directory, as the pairing of two nodes leaves it.
func newMember(t *testing.T, bridge *harness.Bridge, name, cidr string) (*harness.Host, *clustertest.Member) {
	t.Helper()
	h := harness.NewHost(t, name)
	bridge.Attach(h, cidr)
	return h, clustertest.NewAt(t, filepath.Join(h.DataDir, "cluster"))
}

// trusts waits until the node lists another as a member of its cluster, or not.
func (n *node) trusts(uuid string, want bool) {
	n.t.Helper()
	eventually(n.t, appearWithin, n.Name+" to judge "+uuid, func() bool {
		var list discovery.AvailableNodes
		n.client.MustCall("discovery:get-nodes", nil, &list)
		for _, other := range list.Nodes {
			if other.HostUUID == uuid {
				return other.Trusted == want
			}
		}
		return false
	})
}

func TestAPairedMachineIsFoundAtItsLastPlaceWithoutMulticast(t *testing.T) {
	t.Parallel()
	bridge := harness.NewBridge(t)
	alpha, self := newMember(t, bridge, "alpha", "192.168.7.1/24")
	beta, peer := newMember(t, bridge, "beta", "192.168.7.2/24")
	clustertest.Pair(self, peer)
	b := startNode(t, beta)
	a := startNode(t, alpha)
	a.trusts(peer.UUID, true)
	b.trusts(self.UUID, true)
	eventually(t, appearWithin, "the place to be saved", func() bool {
		text, _ := os.ReadFile(filepath.Join(alpha.DataDir, "known-peers.json")) // there is none at first
		return strings.Contains(string(text), `"192.168.7.2"`)
	})

	require.NoError(t, a.proc.Stdin.Close())
	require.Equal(t, 0, a.proc.AwaitExit(appearWithin))
	bridge.BlockMulticast(alpha, true)
	bridge.BlockMulticast(beta, true)
	a = startNode(t, alpha)
	a.trusts(peer.UUID, true)
	self.Unpin(peer)
	a.trusts(peer.UUID, false)
}
