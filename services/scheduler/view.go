// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"errors"
	"slices"
	"strings"
	"time"

	"nvpair/shared/schedule"
	"nvpair/shared/workload"
)

// Bounds of a view besides schedule.MaxNodes.
const (
	// maxJobs bounds the pending jobs that are known.
	maxJobs = 10_000
	// maxEarly bounds the nodes that have sent telemetry but are in no list.
	maxEarly = schedule.MaxNodes
)

var (
	errTooManyJobs  = errors.New("too many pending jobs, one is not counted")
	errTooManyEarly = errors.New("too many unlisted nodes, telemetry dropped")
	errTooManyNodes = errors.New("too many nodes, the last by id are not ranked")
)

// job is what an upsert says about a job.
type job struct {
	id, engine, runID, origin string // its key (JS-17)
	state                     string
	node                      string // that it is placed on; "" for none
}

// pending reports whether the job is load on its node (JS-18).
func (j job) pending() bool {
	return j.node != "" && (j.state == workload.StateQueued || j.state == workload.StateRunning)
}

// view is what this machine knows: the nodes, the pending jobs on them and their
// GPUs' load. Each node carries the number of its jobs, so that no input costs
// more than what it changes. Methods that report a change mean one that can show
// in the ranking. A view is not safe for concurrent use.
type view struct {
	nodes  map[string]*node // listed, or named by a job or a sample
	listed []*node          // in the order of the newest ranking
	jobs   map[jobRef][]placed
	count  int // of jobs
	early  int // nodes with a sample that are not listed
	round  int // number of the newest list
}

// node is a node that somebody named.
type node struct {
	id       string
	listed   bool
	seen     int // the newest list that had it
	pending  int
	gauge    gauge
	pressure int // in force, i.e. as ranked; PressureUnknown unless listed
}

// compare orders nodes by JS-34. Ids are looked at last: they cost the most.
func (n *node) compare(o *node) int {
	if d := n.pending + n.pressure - o.pending - o.pressure; d != 0 {
		return d
	}
	if d := n.pressure - o.pressure; d != 0 {
		return d
	}
	return strings.Compare(n.id, o.id)
}

// jobRef is the part of a job's key that a removal names.
type jobRef struct{ origin, id string }

// placed is a pending job on a node, with the rest of its key. Jobs without a
// node are not kept: whatever places them carries all of it again.
type placed struct {
	engine, runID string
	on            *node
}

func newView() view {
	return view{nodes: map[string]*node{}, jobs: map[jobRef][]placed{}}
}

// node returns the node with that id, known from now on. Ids that come in are
// parts of a frame and are copied, so that they do not keep it in memory.
func (v *view) node(id string) *node {
	n := v.nodes[id]
	if n == nil {
		n = &node{id: strings.Clone(id), pressure: schedule.PressureUnknown}
		v.nodes[n.id] = n
	}
	return n
}

// release forgets a node that nothing names any more.
func (v *view) release(n *node) {
	if !n.listed && n.pending == 0 && !n.gauge.used() {
		delete(v.nodes, n.id)
	}
}

// setNodes replaces the universe and forgets the telemetry of all other nodes
// (JS-15). Of more than MaxNodes ids the first in byte order count: the order of
// the list must not matter (JS-14). It keeps ids.
func (v *view) setNodes(ids []string, now time.Time) (changed bool, err error) {
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) > schedule.MaxNodes {
		ids, err = ids[:schedule.MaxNodes], errTooManyNodes
	}
	v.round++
	for _, id := range ids {
		n := v.node(id)
		n.seen = v.round
		if !n.listed {
			n.listed, changed = true, true
			n.pressure = n.gauge.pressure(now)
			v.listed = append(v.listed, n)
		}
	}
	v.listed = slices.DeleteFunc(v.listed, func(n *node) bool { return n.seen != v.round })
	for _, n := range v.nodes {
		if n.seen == v.round {
			continue
		}
		changed = changed || n.listed
		n.listed, n.gauge, n.pressure = false, gauge{}, schedule.PressureUnknown
		v.release(n)
	}
	v.early = 0
	return changed, err
}

// upsert adds, moves or drops one job (JS-19 to JS-21).
func (v *view) upsert(j job) (changed bool, err error) {
	ref := jobRef{j.origin, j.id}
	same := v.jobs[ref]
	i := slices.IndexFunc(same, func(p placed) bool { return p.engine == j.engine && p.runID == j.runID })
	switch {
	case i < 0 && !j.pending():
		return false, nil
	case i < 0:
		return v.add(ref, j)
	case !j.pending():
		return v.drop(ref, i), nil
	case same[i].on.id == j.node:
		return false, nil
	}
	to := v.node(j.node)
	from := same[i].on
	same[i].on = to
	lost, gained := v.credit(from, -1), v.credit(to, 1)
	return lost || gained, nil
}

func (v *view) add(ref jobRef, j job) (changed bool, err error) {
	if v.count >= maxJobs {
		return false, errTooManyJobs
	}
	v.count++
	n := v.node(j.node)
	if _, found := v.jobs[ref]; !found {
		ref = jobRef{strings.Clone(ref.origin), strings.Clone(ref.id)}
	}
	v.jobs[ref] = append(v.jobs[ref], placed{strings.Clone(j.engine), strings.Clone(j.runID), n})
	return v.credit(n, 1), nil
}

func (v *view) drop(ref jobRef, i int) (changed bool) {
	same := v.jobs[ref]
	n := same[i].on
	v.count--
	if len(same) == 1 {
		delete(v.jobs, ref)
	} else {
		v.jobs[ref] = slices.Delete(same, i, i+1)
	}
	return v.credit(n, -1)
}

// remove drops every job of that origin and id (JS-22).
func (v *view) remove(ref jobRef) (changed bool) {
	for _, p := range v.jobs[ref] {
		v.count--
		if v.credit(p.on, -1) {
			changed = true
		}
	}
	delete(v.jobs, ref)
	return changed
}

// credit adds to a node's pending jobs. Those of an unlisted node are counted,
// for it may be listed later, but show nowhere (JS-20).
func (v *view) credit(n *node, jobs int) (changed bool) {
	n.pending += jobs
	v.release(n)
	return n.listed
}

// take takes a sample. Compared is the pressure in force: a node that has become
// stale unnoticed counts as it was ranked (JS-30).
func (v *view) take(s sample, now time.Time) (changed bool, err error) {
	n := v.nodes[s.node]
	if n == nil || !n.listed {
		return false, v.takeEarly(s, now)
	}
	n.gauge.take(s, now)
	before := n.pressure
	n.pressure = n.gauge.pressure(now)
	return n.pressure != before, nil
}

// takeEarly keeps the sample of a node that no list has named yet.
func (v *view) takeEarly(s sample, now time.Time) error {
	n := v.node(s.node)
	defer v.release(n)
	if n.gauge.used() {
		v.early--
	}
	if v.early >= maxEarly {
		return errTooManyEarly
	}
	n.gauge.take(s, now)
	if n.gauge.used() {
		v.early++
	}
	return nil
}

// expire takes out of force what has become stale.
func (v *view) expire(now time.Time) (changed bool) {
	for _, n := range v.listed {
		if p := n.gauge.pressure(now); p != n.pressure {
			n.pressure, changed = p, true
		}
	}
	return changed
}

// mayExpire reports whether time alone can change the ranking. A sample in the
// band of the unknown cannot.
func (v *view) mayExpire() bool {
	return slices.ContainsFunc(v.listed, func(n *node) bool { return n.pressure != schedule.PressureUnknown })
}

// rank orders the listed nodes (JS-34) and returns them in memory of their own.
func (v *view) rank(now time.Time) []schedule.NodeRank {
	v.expire(now)
	slices.SortFunc(v.listed, (*node).compare)
	ranks := make([]schedule.NodeRank, len(v.listed))
	for i, n := range v.listed {
		ranks[i] = schedule.NodeRank{ID: n.id, Pending: n.pending, GPUPressure: n.pressure, Rank: i}
	}
	return ranks
}
