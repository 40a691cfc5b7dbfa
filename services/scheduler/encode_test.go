// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/internal/jsonrpc"
	"nvpair/shared/schedule"
)

func TestEncodingIsThatOfTheWireType(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	names := []string{"a", "8c1d5e9e-0000-4000-8000-5a2f5a2f5a2f", "ü", `quo"te`, `back\slash`, "tab\t\x01", "\u2028", "<&>", "\x7f"}
	for n := range 20 {
		p := schedule.Priority{Engine: names[r.IntN(len(names))], Ranking: schedule.Ranking{Nodes: []string{}}}
		for i := range n {
			id := names[r.IntN(len(names))] + strings.Repeat("x", r.IntN(3))
			p.Nodes = append(p.Nodes, id)
			p.Ranks = append(p.Ranks, schedule.NodeRank{ID: id, Pending: r.IntN(12_000), GPUPressure: r.IntN(4), Rank: i})
		}
		want, err := jsonrpc.Marshal(p)
		require.NoError(t, err)
		require.Equal(t, string(want), string(encodePriority(p.Engine, p.Ranks)))
	}
}
