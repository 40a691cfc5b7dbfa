// SPDX-License-Identifier: Apache-2.0

package route

import "sync"

// Ledger counts the requests that this process has sent to each node since the
// scheduler's last word, so that requests that arrive together spread without
// waiting for its feedback (PX-55 to PX-58). One serves all facades.
type Ledger struct {
	mu         sync.Mutex       // guards the rest
	slots      map[string]int32 // index into counts by node id; never shrinks, nodes are few
	counts     []int32
	generation uint64 // of the ranking the counts stand on
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger { return &Ledger{slots: make(map[string]int32)} }

func (l *Ledger) slot(id string) int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.slots[id]
	if !ok {
		s = int32(len(l.counts))
		l.slots[id] = s
		l.counts = append(l.counts, 0)
	}
	return s
}

// Reset starts the counts anew under a newer ranking, whose own numbers now hold
// what was reserved before. publish puts the indexes of that ranking in place; it
// runs under the ledger's lock, so that no request counts under the one and
// chooses by the other (PX-27). Reset reports false for a ranking that is not
// newer, and publishes nothing then.
func (l *Ledger) Reset(generation uint64, publish func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if generation <= l.generation {
		return false
	}
	l.generation = generation
	clear(l.counts)
	publish()
	return true
}

// Reservation is one request's place on one node. The zero value holds nothing.
type Reservation struct {
	ledger     *Ledger
	generation uint64
	slot       int32
	held       bool
}

// Reserve picks the least loaded of the candidates that the scheduler has
// ranked, ties to the earlier one, reserves it and puts it first. Without a
// ranked candidate nothing is reserved and the order stays. current is false for
// candidates of an index that a newer one has replaced: take them from that one.
func (l *Ledger) Reserve(c Candidates) (chosen Candidates, r Reservation, current bool) {
	x := c.index
	if len(c.list) == 0 || int(c.list[0]) >= x.listed {
		return c, Reservation{}, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if x.generation < l.generation {
		return c, Reservation{}, false
	}
	best, least := c.list[0], int32(0)
	for n, i := range c.list {
		if int(i) >= x.listed {
			break
		}
		node := &x.nodes[i]
		if load := node.load + l.counts[node.slot]; n == 0 || load < least {
			best, least = i, load
		}
	}
	c.first = best
	slot := x.nodes[best].slot
	l.counts[slot]++
	return c, Reservation{ledger: l, generation: l.generation, slot: slot, held: true}, true
}

// Move takes the reservation to the node that is really tried. Across a newer
// ranking the old place is not given back: that ranking began without it.
func (r *Reservation) Move(n *Node) {
	if !r.held || r.slot == n.slot {
		return
	}
	l := r.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	r.freeLocked()
	l.counts[n.slot]++
	r.slot, r.generation = n.slot, l.generation
}

// Release gives the place back. It may be called more than once.
func (r *Reservation) Release() {
	if !r.held {
		return
	}
	r.held = false
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	r.freeLocked()
}

func (r *Reservation) freeLocked() {
	if r.generation == r.ledger.generation && r.ledger.counts[r.slot] > 0 {
		r.ledger.counts[r.slot]--
	}
}

// Reserved returns what is reserved on a node.
func (l *Ledger) Reserved(id string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s, ok := l.slots[id]; ok {
		return int(l.counts[s])
	}
	return 0
}
