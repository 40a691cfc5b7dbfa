// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"nvpair/internal/jsonrpc"
	"nvpair/services/proxy/route"
	"nvpair/shared/schedule"
)

// maxPending keeps sums of loads from overflowing.
const maxPending = 1 << 20

// setPriority takes the scheduler's ranking for all facades (PX-26 to PX-28).
func (p *proxy) setPriority(req *jsonrpc.Request) {
	var params schedule.SetPriority
	if !decode(req, &params) {
		return
	}
	if params.Generation <= 0 {
		req.Fail(jsonrpc.InvalidParams("generation is required and must be greater than 0"))
		return
	}
	if uint64(params.Generation) > p.currentRanking().Generation {
		p.applyRanking(fromWire(params))
	}
	req.Reply(map[string]int{"count": len(p.currentRanking().Nodes)})
}

func fromWire(s schedule.SetPriority) route.Ranking {
	r := route.Ranking{Generation: uint64(s.Generation), Nodes: s.Nodes, Load: make(map[string]int32)}
	for _, n := range s.Ranks {
		if n.ID != "" {
			pressure := min(max(n.GPUPressure, schedule.PressureNone), schedule.PressureMost)
			r.Load[n.ID] = int32(min(max(n.Pending, 0), maxPending) + pressure)
		}
	}
	return r
}

// applyRanking makes a ranking the ground of all facades' choices, in one step
// with the start of new counts. Facades are locked in table order.
func (p *proxy) applyRanking(r route.Ranking) {
	facades := p.allFacades()
	for _, f := range facades {
		f.state.mu.Lock()
		defer f.state.mu.Unlock()
	}
	p.ranking.Store(&r)
	next := make([]*route.Index, len(facades))
	for i, f := range facades {
		next[i] = route.NewIndex(f.state.routable(), r, p.ledger)
	}
	p.ledger.Reset(r.Generation, func() {
		for i, f := range facades {
			f.index.Store(next[i])
		}
	})
}
