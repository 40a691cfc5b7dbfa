// SPDX-License-Identifier: Apache-2.0

package scanner

import "context"

// turn is the right to ask at one address: a node-info has one connection of ours
// (DI-83). Whoever waits for it does so before its own time runs.
type turn struct {
	held  chan struct{} // capacity 1
	users int           // who holds or awaits it; guarded by infos.mu
}

// take waits for the turn at an address. The caller must call free.
func (i *infos) take(ctx context.Context, addr string) (free func(), err error) {
	i.mu.Lock()
	t := i.turns[addr]
	if t == nil {
		t = &turn{held: make(chan struct{}, 1)}
		i.turns[addr] = t
	}
	t.users++
	i.mu.Unlock()
	leave := func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(i.turns, addr)
		}
	}
	select {
	case t.held <- struct{}{}:
		return func() { <-t.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
