// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"nvpair/internal/jsonrpc"
	"nvpair/shared/serviceerror"
)

// funnel is the one way of service errors from any producer to nvpair-errors,
// and of its list to the client (BR section 10).
type funnel struct {
	b *Broker

	// mu guards the rest. It is held over sends of standing conditions, which only
	// queue, so that a store sees reports, clears and replays in one order.
	mu sync.Mutex
	// standing are the broker's own conditions that have not ended, by id. A
	// restarted store is told of them again (DEC-115).
	standing map[string]serviceerror.ServiceError
	// reported are those of workers, which report a condition once and do not hear
	// of the store's end: they are repeated in the same way (MN-27).
	reported map[string]serviceerror.ServiceError
	list     json.RawMessage // the store's newest list, as it came
}

// Bounds of what is repeated for workers. A larger report is passed on once, and one
// too many takes the place of the oldest.
const (
	maxReported      = 256
	maxReportedBytes = 16 << 10
)

// emptyList is what the client sees of a store that is down or empty.
func emptyList() json.RawMessage { return json.RawMessage("[]") }

func newFunnel(b *Broker) *funnel {
	return &funnel{
		b: b, list: emptyList(),
		standing: make(map[string]serviceerror.ServiceError), reported: make(map[string]serviceerror.ServiceError),
	}
}

// report stamps a producer's report with origin and time where it has none and
// passes it to the store. The error says why the params are unfit.
func (f *funnel) report(params json.RawMessage) error {
	e, err := f.decode(params)
	if err != nil {
		return err
	}
	f.send(serviceerror.MethodReport, e)
	return nil
}

// reportOfWorker does the same, and tells later stores until somebody clears it.
func (f *funnel) reportOfWorker(params json.RawMessage) error {
	e, err := f.decode(params)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(params) <= maxReportedBytes && e.Validate() == nil {
		f.keepLocked(e)
	}
	f.send(serviceerror.MethodReport, e)
	return nil
}

func (f *funnel) keepLocked(e serviceerror.ServiceError) {
	if _, known := f.reported[e.ID]; !known && len(f.reported) >= maxReported {
		oldest := ""
		for id, o := range f.reported {
			if oldest == "" || o.TimestampMillis < f.reported[oldest].TimestampMillis {
				oldest = id
			}
		}
		delete(f.reported, oldest)
	}
	f.reported[e.ID] = e
}

func (f *funnel) decode(params json.RawMessage) (serviceerror.ServiceError, error) {
	var e serviceerror.ServiceError
	if err := unmarshalOptional(params, &e); err != nil {
		return e, err
	}
	if err := (serviceerror.Clear{ID: e.ID}).Validate(); err != nil {
		return e, err // a missing message is the store's to refuse (EB-3)
	}
	return f.stamped(e), nil
}

// clear passes a producer's clear to the store under this node's name (EB-2).
func (f *funnel) clear(params json.RawMessage) error {
	var c serviceerror.Clear
	if err := unmarshalOptional(params, &c); err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return err
	}
	c.ClearedBy = f.b.cfg.NodeID
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.reported, c.ID)
	f.send(serviceerror.MethodClear, c)
	return nil
}

func (f *funnel) stamped(e serviceerror.ServiceError) serviceerror.ServiceError {
	if e.NodeID == "" {
		e.NodeID = f.b.cfg.NodeID
	}
	if e.TimestampMillis == 0 {
		e.TimestampMillis = time.Now().UnixMilli()
	}
	return e
}

// send passes something to the store; without a store it is dropped (EB-5).
func (f *funnel) send(method string, params any) {
	l := f.b.byName[workerErrors].current()
	if l == nil {
		f.b.cfg.Log.Debug("no error store, dropped", "method", method)
		return
	}
	if err := l.conn.Notify(method, params); err != nil {
		f.b.cfg.Log.Debug("error store did not take it", "method", method, "err", err)
	}
}

// raise reports a condition of the broker's own that stands until lower.
func (f *funnel) raise(e serviceerror.ServiceError) {
	e = f.stamped(e)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.standing[e.ID] = e
	f.send(serviceerror.MethodReport, e)
}

// lower ends a condition. One that does not stand is no event.
func (f *funnel) lower(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, stood := f.standing[id]
	delete(f.standing, id)
	if stood {
		f.send(serviceerror.MethodClear, serviceerror.Clear{ID: id, ClearedBy: f.b.cfg.NodeID})
	}
}

// reportCrash raises the entry of a worker that ended. The store's own end is
// only in the log (BR-14).
func (f *funnel) reportCrash(worker, cause string) {
	f.crash(worker, fmt.Sprintf("%s ended unexpectedly (%s); it is restarted", worker, cause))
}

// reportExhausted replaces it once the worker stays down.
func (f *funnel) reportExhausted(worker string) {
	f.crash(worker, worker+" keeps failing and stays down; see the log, then restart the node")
}

func (f *funnel) crash(worker, message string) {
	if worker == workerErrors {
		return
	}
	f.raise(serviceerror.ServiceError{
		ID: serviceerror.CrashID(worker), Message: message,
		Severity: serviceerror.SeverityError, Action: serviceerror.ActionNone,
	})
}

func (f *funnel) clearCrash(worker string) { f.lower(serviceerror.CrashID(worker)) }

// replay tells a new store of everything that stands.
func (f *funnel) replay(l *workerLink) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.reported {
		_ = l.conn.Notify(serviceerror.MethodReport, e) // as below
	}
	for _, e := range f.standing {
		_ = l.conn.Notify(serviceerror.MethodReport, e) // a store that cannot take it has just died again
	}
}

// latest returns the store's newest list.
func (f *funnel) latest() json.RawMessage {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.list
}

// update takes a new list and shows it to the client.
func (f *funnel) update(list json.RawMessage) {
	f.mu.Lock()
	f.list = list
	f.mu.Unlock()
	f.b.client.errors.Mark()
}

// fromErrors handles the store's notifications.
func (b *Broker) fromErrors(_ *workerLink, req *jsonrpc.Request) bool {
	if req.Method != serviceerror.NotifyUpdate || req.Params == nil {
		return false
	}
	b.funnel.update(req.Params)
	return true
}

// errorsEnded empties the list the client sees: the store that held it is gone,
// and the producers report again (ER-7).
func (b *Broker) errorsEnded() { b.funnel.update(emptyList()) }
