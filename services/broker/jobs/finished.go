// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"cmp"
	"encoding/json"
	"slices"
)

// trimLocked forgets finished records beyond the bounds, the oldest first (BR-61).
func (x *Index) trimLocked() {
	oldest := x.wall().Add(-maxFinishedAge).UnixMilli()
	var kept []*record
	for _, r := range x.records {
		switch {
		case !r.terminal():
		case r.ended < oldest:
			x.dropLocked(r)
		default:
			kept = append(kept, r)
		}
	}
	if !x.finished.exceeds(maxFinished, finishedBytes) {
		return
	}
	slices.SortFunc(kept, func(r, o *record) int { return r.compareEnd(o) })
	for _, r := range kept {
		if !x.finished.exceeds(maxFinished, finishedBytes) {
			return
		}
		x.dropLocked(r)
	}
}

func (r *record) compareEnd(o *record) int {
	if c := cmp.Compare(r.ended, o.ended); c != 0 {
		return c
	}
	return r.compare(o)
}

// History trims the finished records and returns the authoritative ones, which
// are what belongs on disk, oldest end first.
func (x *Index) History() []json.RawMessage {
	x.mu.Lock()
	x.trimLocked()
	var kept []*record
	for _, r := range x.records {
		if r.historic() {
			kept = append(kept, r)
		}
	}
	x.takeChanged() // all of it is in the list
	x.mu.Unlock()
	slices.SortFunc(kept, (*record).compareEnd)
	list := make([]json.RawMessage, 0, len(kept))
	for _, r := range kept {
		list = append(list, r.raw)
	}
	return list
}

// takeChanged reports whether the history has changed since somebody looked.
func (x *Index) takeChanged() bool {
	select {
	case <-x.changed:
		return true
	default:
		return false
	}
}

// Restore merges what History once returned. Elements that are no finished job are
// skipped and counted.
func (x *Index) Restore(list []json.RawMessage) (skipped int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, raw := range list {
		e, err := NewEvent(raw, FromHistory)
		if err != nil || !e.terminal() {
			skipped++
			continue
		}
		x.putLocked(e)
	}
	x.trimLocked()
	x.takeChanged() // what is on disk needs no writing
	return skipped
}
