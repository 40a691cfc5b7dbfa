// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"time"

	"nvpair/shared/discovery"
)

// farewell asks the nodes of that name whether they are gone, so that one that
// stopped in order leaves the directory at once. The goodbye itself proves nothing:
// anybody can send one, and names are not unique.
func (p *peers) farewell(instance string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uuid, known := range p.byUUID {
		if known.name != instance || known.leaving || !known.listed {
			continue
		}
		// One that stops withdraws its services before it says goodbye: it is asked
		// where it last could be.
		if !p.dir.isProven(uuid) {
			// It never answered as itself, so nobody can have used it, and if it lives
			// it is heard again. Nobody is asked for its sake either: its addresses may
			// be anybody's.
			p.dropLocked(uuid)
			continue
		}
		asked := p.dir.inUse(known.asked)
		if !probeable(asked) {
			continue
		}
		select {
		case p.s.leaving <- struct{}{}:
		default:
			continue // found gone like one that said nothing
		}
		known.leaving = true
		p.s.running.Go(func() {
			defer func() { <-p.s.leaving }()
			p.seeOff(uuid, asked)
		})
	}
}

// farewellsAtOnce bounds the nodes that are seen off at a time.
const farewellsAtOnce = 8

// seeOff removes a node that takes no connection any more, or where somebody else
// answers. It must fail several times: one that is only busy is not gone.
func (p *peers) seeOff(uuid string, n discovery.DirectoryNode) {
	failures := 0
	var asked time.Time // the last time
	for _, wait := range farewellProbes() {
		if !pause(p.s.ctx, wait) {
			return
		}
		asked = time.Now()
		if p.s.takesPart(p.s.ctx, n) {
			failures = 0
		} else if failures++; failures == goneAfter {
			break
		}
	}
	gone := failures >= goneAfter
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.byUUID[uuid]
	if known == nil {
		return
	}
	known.leaving = false
	if gone && !known.heard.After(asked) && p.s.ctx.Err() == nil { // else it is back already
		p.s.log.Info("node left", "node", uuid, "name", known.name)
		p.dropLocked(uuid)
	}
}

// goneAfter is how many failures in a row are proof.
const goneAfter = 2

// farewellProbes is when a node that said goodbye is asked, each after the one
// before: its services end beside its goodbye, not before it.
func farewellProbes() []time.Duration {
	return []time.Duration{
		200 * time.Millisecond, 400 * time.Millisecond, 600 * time.Millisecond, time.Second,
		1500 * time.Millisecond, time.Second, // a worker may take three seconds to end
	}
}
