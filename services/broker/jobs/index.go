// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"slices"
	"sync"
	"time"

	"nvpair/shared/workload"
)

// Bounds of the index. Those of finished records are BR-61, and bytes.
const (
	maxOpen        = 10_000
	maxOpenBytes   = 32 << 20
	maxFinished    = 10_000
	finishedBytes  = 32 << 20
	maxFinishedAge = 7 * 24 * time.Hour
)

// Config is what an Index needs to know.
type Config struct {
	NodeID string // this node: its own jobs are never guessed about
	// Wall returns the wall clock; nil is time.Now. Nothing but times in records
	// comes from it.
	Wall func() time.Time
}

// Index is the set of jobs. Its methods may be called from any goroutine and
// never block; what they return is a snapshot.
type Index struct {
	node string
	wall func() time.Time

	changed chan struct{} // capacity 1: the history has changed since somebody looked
	foreign chan struct{} // capacity 1: there is an open record of another node again

	mu       sync.Mutex // guards the rest
	records  map[workload.Key]*record
	pairs    map[workload.Pair][]*record // the same records by what a removal names
	own      usage                       // of open records of this node
	remote   usage                       // of open records of other nodes
	finished usage                       // of finished records
}

// usage is what some records take.
type usage struct{ records, bytes int }

func (u *usage) add(r *record) { u.records++; u.bytes += len(r.raw) }
func (u *usage) sub(r *record) { u.records--; u.bytes -= len(r.raw) }

func (u usage) plus(o usage) usage { return usage{u.records + o.records, u.bytes + o.bytes} }

func (u usage) exceeds(records, bytes int) bool { return u.records > records || u.bytes > bytes }

// record is the present state of one job. Only lastSeen ever changes.
type record struct {
	fields
	source   Source
	inferred bool
	updated  time.Time // when it was accepted
	ended    int64     // of a finished one: completedAt, else the wall clock at updated; Unix milliseconds

	lastSeen time.Time // latest sighting (CT-15); guarded by Index.mu
}

// New returns an empty index.
func New(cfg Config) *Index {
	if cfg.Wall == nil {
		cfg.Wall = time.Now
	}
	return &Index{
		node: cfg.NodeID, wall: cfg.Wall,
		changed: make(chan struct{}, 1), foreign: make(chan struct{}, 1),
		records: make(map[workload.Key]*record), pairs: make(map[workload.Pair][]*record),
	}
}

// Verdict is what became of an event.
type Verdict int

const (
	Accepted Verdict = iota
	Rejected         // it does not change the record
	Full             // it would open a record beyond the bounds
)

// Put merges an event.
func (x *Index) Put(e Event) Verdict {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.putLocked(e)
}

func (x *Index) putLocked(e Event) Verdict {
	now := time.Now()
	cur := x.records[e.key]
	if cur != nil && !e.inferred && e.createdAt >= cur.createdAt {
		cur.lastSeen = now
	}
	if cur != nil && !replaces(cur, &e) {
		return Rejected
	}
	if !e.terminal() && !x.fitsLocked(cur, &e) {
		return Full
	}
	r := &record{fields: e.fields, source: e.source, inferred: e.inferred, updated: now, lastSeen: now}
	if r.terminal() {
		if r.ended = e.completedAt; r.ended == 0 {
			r.ended = x.wall().UnixMilli()
		}
	}
	if cur != nil {
		if e.inferred {
			r.lastSeen = cur.lastSeen // a guess is no sighting (BR-51)
		}
		x.dropLocked(cur)
	}
	x.addLocked(r)
	if x.finished.exceeds(maxFinished*5/4, finishedBytes*5/4) {
		x.trimLocked()
	}
	return Accepted
}

// fitsLocked reports whether an open record may take the place of cur, or be new.
func (x *Index) fitsLocked(cur *record, e *Event) bool {
	added := usage{1, len(e.raw)}
	if cur != nil && !cur.terminal() {
		added = usage{0, len(e.raw) - len(cur.raw)}
	}
	if e.key.OriginatedFrom != x.node && x.remote.plus(added).exceeds(maxOpen*4/5, maxOpenBytes*4/5) {
		return false
	}
	return !x.own.plus(x.remote).plus(added).exceeds(maxOpen, maxOpenBytes)
}

func (x *Index) addLocked(r *record) {
	x.records[r.key] = r
	x.pairs[r.key.Pair()] = append(x.pairs[r.key.Pair()], r)
	x.usageLocked(r).add(r)
	if r.historic() {
		signal(x.changed)
	}
	if !r.terminal() && x.remote.records == 1 && r.key.OriginatedFrom != x.node {
		signal(x.foreign)
	}
}

func (x *Index) dropLocked(r *record) {
	delete(x.records, r.key)
	pair := r.key.Pair()
	if left := slices.DeleteFunc(x.pairs[pair], func(o *record) bool { return o == r }); len(left) > 0 {
		x.pairs[pair] = left
	} else {
		delete(x.pairs, pair)
	}
	x.usageLocked(r).sub(r)
	if r.historic() {
		signal(x.changed)
	}
}

// usageLocked returns the account that a record is in.
func (x *Index) usageLocked(r *record) *usage {
	switch {
	case r.terminal():
		return &x.finished
	case r.key.OriginatedFrom == x.node:
		return &x.own
	}
	return &x.remote
}

// historic reports whether a record belongs on disk (BR-59).
func (r *record) historic() bool { return r.terminal() && !r.inferred }

// Remove deletes every record of that origin and id and returns how many.
func (x *Index) Remove(p workload.Pair) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := slices.Clone(x.pairs[p])
	for _, r := range all {
		x.dropLocked(r)
	}
	return len(all)
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
