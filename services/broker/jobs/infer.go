// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"slices"
	"time"

	"nvpair/shared/workload"
)

// Times of the silence sweep (BR-54). The budget is ten heartbeats of a workload
// manager (WL-38).
const (
	silenceBudget = 5 * time.Minute
	sweepEvery    = time.Minute
)

// Texts of failures that this node states (CT-22, DEC-129). node is a name, or
// a uuid where none is known.
func OfflineText(node string) string { return "node " + node + " went offline" }

func SilentText(node string) string { return "node " + node + " stopped reporting this workload" }

const ProxyExitedText = "proxy exited"

// Candidate is an open record about which something may be stated, as it was
// when it was found.
type Candidate struct {
	Key workload.Key
	// still reports whether the reason still holds, so that a sighting or a
	// removal since then cancels it (BR-55). It runs under the index's lock.
	still func(*record) bool
}

// Lost returns the open records that fail because a node left the directory
// (BR-53, DEC-90). Never those of this node (DEC-26); and a departed node's job
// that executes here has only lost its reporter, so it is left to Silent.
func (x *Index) Lost(node string) []Candidate {
	if node == x.node {
		return nil
	}
	return x.candidates(func(r *record) bool {
		from := r.key.OriginatedFrom
		return from != x.node && (r.scheduledOn == node || from == node && r.scheduledOn != x.node)
	})
}

// Silent returns the open records of other nodes that nobody has mentioned for
// five minutes. A record that shares origin and id with another open one is
// skipped.
func (x *Index) Silent() []Candidate {
	return x.candidates(func(r *record) bool {
		return r.key.OriginatedFrom != x.node && time.Since(r.lastSeen) >= silenceBudget && !x.sharesPairLocked(r)
	})
}

func (x *Index) sharesPairLocked(r *record) bool {
	return slices.ContainsFunc(x.pairs[r.key.Pair()], func(o *record) bool { return o != r && !o.terminal() })
}

// Of returns the open records whose latest accepted event came from that source.
func (x *Index) Of(source Source) []Candidate {
	return x.candidates(func(r *record) bool { return r.source == source })
}

// candidates returns the open records for which a reason holds, in the order of
// replay.
func (x *Index) candidates(reason func(*record) bool) []Candidate {
	var list []Candidate
	for _, r := range x.pick(func(r *record) bool { return !r.terminal() && reason(r) }) {
		list = append(list, Candidate{Key: r.key, still: reason})
	}
	return list
}

// Infer fails a candidate by a guess of this node, unless its reason is gone. The
// guess yields to its origin (CT-12) and never reaches the history.
func (x *Index) Infer(c Candidate, text string) (Change, bool) {
	return x.fail(c, text, func(e *Event) { e.inferred = true })
}

// End fails a candidate on the authority of a producer that is gone: one event
// after its last (DEC-129).
func (x *Index) End(c Candidate, text string) (Change, bool) {
	return x.fail(c, text, func(e *Event) {
		e.seq++
		e.raw = amend(e.raw, replacement{"seq", encode(e.seq)})
	})
}

func (x *Index) fail(c Candidate, text string, finish func(*Event)) (Change, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	cur := x.records[c.Key]
	if cur == nil || cur.terminal() || !c.still(cur) {
		return Change{}, false
	}
	e := Event{fields: cur.fields, source: cur.source}
	e.state, e.rank, e.completedAt = workload.StateFailed, workload.RankTerminal, x.wall().UnixMilli()
	e.raw = amend(cur.raw,
		replacement{"state", encode(e.state)},
		replacement{"completedAt", encode(e.completedAt)},
		replacement{"error", encode(text)})
	finish(&e)
	return e.change(), x.putLocked(e) == Accepted
}

// WatchSilence passes the candidates of a sweep every minute to guess, until ctx
// ends. It sleeps while there is no open record of another node.
func (x *Index) WatchSilence(ctx context.Context, guess func(Candidate)) {
	for {
		select {
		case <-x.foreign:
			x.sweep(ctx, guess)
		case <-ctx.Done():
			return
		}
	}
}

func (x *Index) sweep(ctx context.Context, guess func(Candidate)) {
	ticks := time.NewTicker(sweepEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
		for _, c := range x.Silent() {
			guess(c)
		}
		if !x.hasForeign() {
			return // the next such record signals again
		}
	}
}

func (x *Index) hasForeign() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.remote.records > 0
}
