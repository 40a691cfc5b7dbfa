// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"
)

// Record is what the engine saw of one request.
type Record struct {
	ID        int64     `json:"id"`         // counts requests from 1
	Conn      int64     `json:"connection"` // counts connections from 1
	Turn      int       `json:"turn"`       // which request of its connection, from 1
	Arrival   time.Time `json:"arrival"`    // when its head was complete
	Method    string    `json:"method"`
	Path      string    `json:"path"`
	Query     string    `json:"query,omitempty"`
	Head      string    `json:"head"` // byte for byte
	Model     string    `json:"model,omitempty"`
	BodyBytes int64     `json:"bodyBytes"`  // read, after any chunked coding was undone
	BodyHash  string    `json:"bodySha256"` // of those; empty when no body was read
	BodyDone  bool      `json:"bodyDone"`   // all of it was read
	Status    int       `json:"status"`     // 0 before and without an answer
	SentBytes int64     `json:"sentBytes"`  // handed to the kernel, heads and chunk sizes included
	AtOnce    int       `json:"atOnce"`     // requests then in progress, this one included
	Left      string    `json:"left"`       // "closed" or "reset" if the client left before the end, else empty
	LeftMs    float64   `json:"leftMs"`     // when, in milliseconds since arrival
	End       string    `json:"end"`        // "open", "complete", "left", "cut" by a fault or eviction, "stopped" engine
	EndMs     float64   `json:"endMs"`      // when, in milliseconds since arrival
}

// Report is what the engine saw since the last reset.
type Report struct {
	Total    int64    `json:"total"`     // requests that arrived
	Open     int      `json:"open"`      // in progress
	MaxOpen  int      `json:"maxAtOnce"` // most in progress at once
	Requests []Record `json:"requests"`  // oldest first; only the newest are kept
}

// record is a Record in the making. All but sent is guarded by the witness's mu.
type record struct {
	Record
	sum  [sha256.Size]byte
	read bool // sum is of a body
	sent atomic.Int64
}

// witness keeps the records.
type witness struct {
	keep    int
	awaited atomic.Bool // somebody waits for a change; set before the report is made that is not enough

	mu      sync.Mutex // guards what follows, and the records
	ring    []*record  // the newest, from start on once it is full
	start   int
	total   int64
	next    int64
	open    int
	max     int
	changed chan struct{} // closed and replaced at a change; nil while nobody waits
}

func newWitness(keep int) *witness { return &witness{keep: max(keep, 0)} }

func (w *witness) begin(x *exchange) *record {
	r := &record{}
	r.Conn, r.Turn, r.Arrival = x.c.id, x.c.turn, time.Now()
	r.Method, r.Path, r.Query, r.Head, r.BodyDone = x.method, x.path, x.query, x.head, x.length == 0
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	w.total++
	w.open++
	w.max = max(w.max, w.open)
	r.ID, r.AtOnce, r.End = w.next, w.open, "open"
	switch {
	case w.keep == 0:
	case len(w.ring) < w.keep:
		w.ring = append(w.ring, r)
	default:
		w.ring[w.start] = r
		w.start = (w.start + 1) % w.keep
	}
	w.changedLocked()
	return r
}

func (w *witness) end(r *record, x *exchange) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open--
	r.Status, r.EndMs = x.stream.status, since(r.Arrival)
	switch x.err {
	case nil:
		r.End = "complete"
	case errLeft:
		r.End = "left"
	case errClosing:
		r.End = "stopped"
	default:
		r.End = "cut"
	}
	w.changedLocked()
}

func since(t time.Time) float64 { return float64(time.Since(t).Microseconds()) / 1000 }

// leave notes that the client left.
func (r *record) leave(w *witness, how string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.Left, r.LeftMs = how, since(r.Arrival)
	w.changedLocked()
}

// body notes what was read of the body.
func (r *record) body(w *witness, n int64, sum [sha256.Size]byte, done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.BodyBytes, r.sum, r.read, r.BodyDone = n, sum, true, done
	w.changedLocked()
}

// model notes the model that the request names.
func (r *record) model(w *witness, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.Model = name
}

func (w *witness) changedLocked() {
	if w.changed != nil {
		close(w.changed)
		w.changed = nil
		w.awaited.Store(false)
	}
}

// wrote notes that bytes were sent, which the record knows.
func (w *witness) wrote() {
	if w.awaited.Load() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.changedLocked()
	}
}

func (w *witness) report() Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reportLocked()
}

func (w *witness) reportLocked() Report {
	rep := Report{Total: w.total, Open: w.open, MaxOpen: w.max, Requests: []Record{}}
	for i := range w.ring {
		r := w.ring[(w.start+i)%len(w.ring)]
		out := r.Record
		out.SentBytes = r.sent.Load()
		if r.read {
			out.BodyHash = hex.EncodeToString(r.sum[:])
		}
		rep.Requests = append(rep.Requests, out)
	}
	return rep
}

// reset forgets the requests that have ended; those in progress stay and count.
func (w *witness) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	var kept []*record
	for i := range w.ring {
		if r := w.ring[(w.start+i)%len(w.ring)]; r.End == "open" {
			kept = append(kept, r)
		}
	}
	w.ring, w.start, w.total, w.max = kept, 0, int64(w.open), w.open
}

func (w *witness) await(ctx context.Context, ok func(Report) bool) (Report, error) {
	for {
		w.mu.Lock()
		if w.changed == nil {
			w.changed = make(chan struct{})
		}
		w.awaited.Store(true)
		rep := w.reportLocked()
		changed := w.changed
		w.mu.Unlock()
		if ok(rep) {
			return rep, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return rep, ctx.Err()
		}
	}
}
