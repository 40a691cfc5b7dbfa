// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"slices"
	"sync"

	"nvpair/shared/schedule"
)

// Ranking is the newest ranking of the scheduler, numbered. The zero value has
// none.
type Ranking struct {
	mu         sync.Mutex // guards the rest
	newest     schedule.Ranking
	generation int64 // counts the rankings from 1; 0 = there is none yet
}

// Offer takes a ranking and reports whether it is another one than before. One
// that is equal is dropped, so the scheduler's copy for a second engine makes no
// new generation (BR-67). An empty ranking is a ranking.
func (r *Ranking) Offer(n schedule.Ranking) (changed bool) {
	if n.Nodes == nil {
		n.Nodes = []string{} // never null on the wire
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.generation > 0 && slices.Equal(n.Nodes, r.newest.Nodes) && slices.Equal(n.Ranks, r.newest.Ranks) {
		return false
	}
	r.newest = n
	r.generation++
	return true
}

// Newest returns the newest ranking, which is not to be written to, and its
// generation, which is 0 if there is none.
func (r *Ranking) Newest() (n schedule.Ranking, generation int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest, r.generation
}
