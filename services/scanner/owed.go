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
// yet, so that its directory cannot drift from this one. The zero value with send
// set is ready.
type owed struct {
	send func(method string, params any) bool // false: not now. It must not wait

	mu    sync.Mutex // guards waits; held over send, to keep the order
	waits map[string]event
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
	if o.waits == nil {
		o.waits = make(map[string]event)
	}
	o.waits[node] = event{method, params}
}

// run offers what waits until ctx ends.
func (o *owed) run(ctx context.Context) {
	for pause(ctx, owedEvery) {
		o.settle()
	}
}

func (o *owed) settle() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for node, e := range o.waits {
		if !o.send(e.method, e.params) {
			return
		}
		delete(o.waits, node)
	}
}
