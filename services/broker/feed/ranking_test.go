// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/shared/schedule"
)

func TestOnlyAnotherRankingMakesAGeneration(t *testing.T) {
	var r Ranking
	_, generation := r.Newest()
	require.Zero(t, generation)
	ab := schedule.Ranking{Nodes: []string{"a", "b"}, Ranks: []schedule.NodeRank{{ID: "a"}, {ID: "b", Pending: 1, Rank: 1}}}
	busier := schedule.Ranking{Nodes: []string{"a", "b"}, Ranks: []schedule.NodeRank{{ID: "a"}, {ID: "b", Pending: 2, Rank: 1}}}
	for n, tt := range []struct {
		offer   schedule.Ranking
		changed bool
		now     int64
	}{
		{schedule.Ranking{}, true, 1}, // an empty one is one
		{schedule.Ranking{Nodes: []string{}}, false, 1},
		{ab, true, 2},
		{ab, false, 2}, // the copy for the second engine
		{busier, true, 3},
		{schedule.Ranking{Nodes: []string{"b", "a"}, Ranks: busier.Ranks}, true, 4},
		{schedule.Ranking{}, true, 5},
	} {
		changed := r.Offer(tt.offer)
		newest, generation := r.Newest()
		if changed != tt.changed || generation != tt.now || newest.Nodes == nil {
			t.Errorf("offer %d: changed %t, generation %d, nodes %v; want %t, %d", n, changed, generation, newest.Nodes, tt.changed, tt.now)
		}
	}
}
