// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"context"
	"sync"
	"time"
)

// owedEvery is how often events that the full link refused are offered again.
const owedEvery = time.Second

// owed keeps the newest event about each node that the broker has not been sent
// yet, so that its directory cannot drift from this one.
type owed struct {
	send func(method string, params any) bool // false: not now. It must not wait
	due  chan struct{}                        // capacity 1: a mark that something waits

	mu    sync.Mutex // guards waits; held over send, to keep the order
	waits map[string]event
}

func newOwed(send func(method string, params any) bool) *owed {
	return &owed{send: send, due: make(chan struct{}, 1), waits: make(map[string]event)}
}

type event struct {
	method string
	params any
}

// emit sends an event about a node, or keeps it.
func (o *owed) emit(node, method string, params any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, waits := o.waits[node]; !waits && o.send(method, params) {
		return
	}
	o.waits[node] = event{method, params}
	select {
	case o.due <- struct{}{}:
	default:
	}
}

// run offers what waits until ctx ends.
func (o *owed) run(ctx context.Context) {
	for {
		select {
		case <-o.due:
		case <-ctx.Done():
			return
		}
		for waits := true; waits; waits = !o.settle() {
			if !pause(ctx, owedEvery) {
				return
			}
		}
	}
}

// settle reports whether nothing waits any more.
func (o *owed) settle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for node, e := range o.waits {
		if !o.send(e.method, e.params) {
			return false
		}
		delete(o.waits, node)
	}
	return true
}
