// SPDX-License-Identifier: Apache-2.0

package worker

import "sync"

// Group is goroutines that a worker waits for at its end, started by whoever needs
// one at whatever time. The zero value is ready.
type Group struct {
	running sync.WaitGroup

	mu     sync.Mutex // guards ending, and that nothing starts once it is set
	ending bool
}

// Go starts f, unless the group is ending: then nothing happens.
func (g *Group) Go(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ending {
		g.running.Go(f)
	}
}

// Join counts the calling goroutine in and returns what counts it out.
func (g *Group) Join() (leave func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ending {
		return func() {}
	}
	g.running.Add(1)
	return g.running.Done
}

// Wait lets nothing start any more and waits for what runs.
func (g *Group) Wait() {
	g.mu.Lock()
	g.ending = true
	g.mu.Unlock()
	g.running.Wait()
}
