// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"nvpair/internal/jsonrpc"
	"nvpair/shared/workload"
)

// lateRetry is how often jobs that the full link refused are offered again.
const lateRetry = 50 * time.Millisecond

// maxLate bounds the jobs that wait for a broker that does not read.
const maxLate = 100_000

// reporter writes job events to the link. The link's own queue takes them off the
// hot path and batches those of two milliseconds; when it is full, a job collapses to its newest
// state and is offered again, so that no end of a job is ever lost (DEC-131).
type reporter struct {
	link notifier
	log  *slog.Logger

	mu    sync.Mutex               // guards the rest
	buf   []byte                   // of the event that is sent
	late  map[string]workload.Info // newest refused state by job
	order []string                 // keys of late, oldest first
	lost  int                      // events given up since the last flush that got through
	ended bool
	retry *time.Timer // armed while late holds anything
}

// notifier is the part of a link that events need.
type notifier interface {
	NotifySoon(method string, params json.RawMessage) error
}

func newReporter(l notifier, log *slog.Logger) *reporter {
	return &reporter{link: l, log: log, late: make(map[string]workload.Info)}
}

// report sends a job's state. Calls for one job come in order.
func (r *reporter) report(info workload.Info) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, waits := r.late[info.Engine+"\x00"+info.ID]; waits || !r.sendLocked(info) {
		r.keepLocked(info)
	}
}

func (r *reporter) sendLocked(info workload.Info) bool {
	r.buf = appendEvent(r.buf[:0], &info)
	err := r.link.NotifySoon(workload.Method(info.State), r.buf) // the link copies it
	return !errors.Is(err, jsonrpc.ErrQueueFull)
}

func (r *reporter) keepLocked(info workload.Info) {
	key := info.Engine + "\x00" + info.ID
	if _, known := r.late[key]; !known {
		if len(r.order) >= maxLate {
			r.lost++
			delete(r.late, r.order[0])
			r.order = r.order[1:]
		}
		r.order = append(r.order, key)
	}
	r.late[key] = info
	if r.retry == nil && !r.ended {
		r.retry = time.AfterFunc(lateRetry, r.flush)
	}
}

func (r *reporter) flush() {
	if lost := r.sendLate(); lost > 0 {
		r.log.Warn("broker did not read, the oldest waiting job events are lost", "lost", lost)
	}
}

// sendLate offers what waits to the link. It returns how many events were given up
// meanwhile, once none waits any more.
func (r *reporter) sendLate() (lost int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.retry = nil
	for len(r.order) > 0 {
		key := r.order[0]
		if !r.sendLocked(r.late[key]) {
			if !r.ended {
				r.retry = time.AfterFunc(lateRetry, r.flush)
			}
			return 0
		}
		delete(r.late, key)
		r.order = r.order[1:]
	}
	lost, r.order, r.lost = r.lost, nil, 0
	return lost
}

func (r *reporter) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	if r.retry != nil {
		r.retry.Stop()
	}
}

// job is one request's entry in the job list. Its events are numbered and
// written under its lock, so that the order on the link is the order of the
// numbers even when the watch over the client writes the last one (PX-80).
type job struct {
	reporter *reporter

	mu    sync.Mutex // guards the rest
	info  workload.Info
	ended bool
}

// newJob announces a job as queued and not placed. Its origin is this node, if the
// broker said which that is, else for the broker to fill in.
func (f *facadeServer) newJob(id, model string) *job {
	j := &job{reporter: f.p.reporter, info: workload.Info{
		ID: id, Model: model, Engine: f.engine.ID, RunID: f.p.runID, OriginatedFrom: f.state.hostUUID,
		State: workload.StateQueued, CreatedMillis: time.Now().UnixMilli(),
	}}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.emitLocked()
	return j
}

// place says where the job is tried, "" for nowhere; no event without a change.
func (j *job) place(node string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended || j.info.ScheduledOn == node {
		return
	}
	j.info.ScheduledOn = node
	j.emitLocked()
}

// run says that the answer has begun.
func (j *job) run() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		return
	}
	now := time.Now().UnixMilli()
	j.info.State, j.info.StartedMillis = workload.StateRunning, &now
	j.emitLocked()
}

// end says how the job ended. Only the first end counts (PX-83).
func (j *job) end(state, text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		return
	}
	j.ended = true
	now := time.Now().UnixMilli()
	j.info.State, j.info.CompletedMillis = state, &now
	if text != "" {
		j.info.Error = &text
	}
	j.emitLocked()
}

func (j *job) emitLocked() {
	j.info.Seq++
	j.reporter.report(j.info)
}
