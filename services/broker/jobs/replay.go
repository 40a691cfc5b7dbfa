// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"nvpair/shared/workload"
)

// replayFinished is how long after its end a job is told to a new workload
// manager (BR-58): as long as the old one kept it (WL-31).
const replayFinished = time.Minute

// compare is the order in which records are told (CT-4); engine and run only
// make it total.
func (r *record) compare(o *record) int {
	if c := cmp.Compare(r.createdAt, o.createdAt); c != 0 {
		return c // nearly always; cmp.Or would look at the rest too
	}
	return cmp.Or(
		strings.Compare(r.key.OriginatedFrom, o.key.OriginatedFrom),
		strings.Compare(r.key.ID, o.key.ID),
		strings.Compare(r.key.Engine, o.key.Engine),
		strings.Compare(r.key.RunID, o.key.RunID))
}

// pick returns the records for which want holds, sorted.
func (x *Index) pick(want func(*record) bool) []*record {
	var found []*record
	x.mu.Lock()
	for _, r := range x.records {
		if want(r) {
			found = append(found, r)
		}
	}
	x.mu.Unlock()
	slices.SortFunc(found, (*record).compare)
	return found
}

// Open returns all open records: what a new scheduler is told (BR-57).
func (x *Index) Open() []Change {
	var list []Change
	for _, r := range x.pick(func(r *record) bool { return !r.terminal() }) {
		list = append(list, r.change())
	}
	return list
}

// Replay is one record as a new workload manager is told of it.
type Replay struct {
	Change
	Method string
	Event  workload.Event
}

// Own returns what a new workload manager is told (BR-58): this node's jobs that
// are open, or have finished within a minute by both clocks. What entered through
// the ingress is marked.
func (x *Index) Own() []Replay {
	now := x.wall().UnixMilli()
	ages := make(map[*record]int64)
	records := x.pick(func(r *record) bool {
		switch {
		case r.key.OriginatedFrom != x.node, workload.Method(r.state) == "":
			return false
		case !r.terminal():
			ages[r] = time.Since(r.lastSeen).Milliseconds()
			return true
		}
		return !r.inferred && now-r.ended < replayFinished.Milliseconds() && time.Since(r.updated) < replayFinished
	})
	var list []Replay
	for _, r := range records {
		p := Replay{Change: r.change(), Method: workload.Method(r.state), Event: workload.Event{Info: r.raw}}
		if age, open := ages[r]; open && r.source == FromManager {
			p.Event.IngressAgeMillis = &age
		}
		list = append(list, p)
	}
	return list
}

// All returns the records for a client, as many as fit into maxBytes with a
// separator each: the newest open ones first, then those that finished last. The
// list is in the order of CT-4 and never nil.
func (x *Index) All(maxBytes int) []json.RawMessage {
	all := x.pick(func(*record) bool { return true })
	if x.total().bytes+len(all) > maxBytes {
		all = newest(all, maxBytes)
	}
	list := make([]json.RawMessage, 0, len(all))
	for _, r := range all {
		list = append(list, r.raw)
	}
	return list
}

func (x *Index) total() usage {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.own.plus(x.remote).plus(x.finished)
}

// newest returns those of sorted records that fit.
func newest(all []*record, maxBytes int) []*record {
	byWorth := slices.Clone(all)
	slices.SortFunc(byWorth, func(r, o *record) int {
		if r.terminal() != o.terminal() {
			return cmp.Compare(r.rank, o.rank) // open ones first
		}
		return o.compareEnd(r)
	})
	for i, r := range byWorth {
		if maxBytes -= len(r.raw) + 1; maxBytes < 0 {
			byWorth = byWorth[:i]
			break
		}
	}
	slices.SortFunc(byWorth, (*record).compare)
	return byWorth
}
