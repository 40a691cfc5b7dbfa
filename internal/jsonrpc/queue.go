// SPDX-License-Identifier: Apache-2.0

package jsonrpc

import (
	"context"
	"encoding/json"
	"sync"
	"time"
)

// keepBytes is how large a buffer may be kept for reuse: an idle link should
// not hold the memory of its largest burst.
const keepBytes = 64 << 10

// outQueue holds encoded frames between any number of producers and the one
// writer. Two buffers swap roles, so the steady state allocates nothing.
type outQueue struct {
	max      int
	wake     chan struct{}   // capacity 1: one mark stands for any amount of work
	room     chan struct{}   // capacity 1: something was written
	finished chan struct{}   // closed when nothing more may be queued
	done     context.Context // ends when the writer has stopped
	stop     context.CancelFunc

	mu        sync.Mutex  // guards the rest; only memory is touched under it
	buf       []byte      // queued, not yet taken
	spare     []byte      // the writer's last buffer, for reuse
	dirty     []*Stream   // marked, to be written behind buf
	responses int         // bytes of responses in buf
	inFlight  int         // bytes the writer has taken and not yet written
	inFlightR int         // of these, bytes of responses
	due       bool        // buf is to be written now
	soon      *time.Timer // makes due a buf of frames that may wait; nil until the first
	lingers   bool        // soon is armed
	half      bool        // the outgoing side ends when the queue is empty
	closed    bool        // the link ends when the queue is empty
}

func newOutQueue(max int) *outQueue {
	q := &outQueue{
		max:      max,
		wake:     make(chan struct{}, 1),
		room:     make(chan struct{}, 1),
		finished: make(chan struct{}),
	}
	q.done, q.stop = context.WithCancel(context.Background())
	return q
}

// linger is how long a frame that may wait does so. Frames that are queued
// meanwhile leave with it, in one write.
const linger = 2 * time.Millisecond

// message queues a request or notification unless the queue is full. One that may
// linger does not wake the writer at once; whatever does takes it along.
func (q *outQueue) message(id []byte, method string, params json.RawMessage, mayLinger bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	before := len(q.buf)
	switch {
	case q.half || q.closed || q.done.Err() != nil:
		return ErrClosed
	case before+q.inFlight+len(params) > q.max: // needs no copy to know
		return ErrQueueFull
	}
	q.buf = appendRequest(q.buf, id, method, params)
	if len(q.buf)+q.inFlight > q.max {
		q.buf = q.buf[:before]
		return ErrQueueFull
	}
	if mayLinger && len(q.buf) < lingerBytes {
		q.lingerLocked()
	} else {
		q.dueLocked()
	}
	return nil
}

// dueLocked wakes the writer for what is queued.
func (q *outQueue) dueLocked() {
	q.due = true
	signal(q.wake)
}

// lingerBytes of waiting frames are worth a write.
const lingerBytes = 64 << 10

// lingerLocked makes what is queued due a little later.
func (q *outQueue) lingerLocked() {
	switch {
	case q.lingers:
	case q.soon == nil:
		q.lingers = true
		q.soon = time.AfterFunc(linger, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.lingers = false
			q.dueLocked()
		})
	default:
		q.lingers = true
		q.soon.Reset(linger)
	}
}

// response queues an answer. It is never refused: the read loop stops asking
// for more when there are too many.
func (q *outQueue) response(id json.RawMessage, member string, value json.RawMessage) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.half || q.closed || q.done.Err() != nil {
		return
	}
	before := len(q.buf)
	q.buf = appendResponse(q.buf, id, member, value)
	q.responses += len(q.buf) - before
	q.dueLocked()
}

// awaitRoom waits while the queued responses alone exceed the bound. The end of
// the link ends the wait: the next read then fails.
func (q *outQueue) awaitRoom() {
	for q.overfull() {
		select {
		case <-q.room:
		case <-q.done.Done():
			return
		}
	}
}

func (q *outQueue) overfull() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.responses+q.inFlightR > q.max
}

// take waits for work and returns everything queued, snapshots last. ok is false
// with the last batch of the link.
//
// Snapshots are taken before the frames: a snapshot then shows no change whose
// frames, queued before the change was made, do not stand ahead of it.
func (q *outQueue) take() (batch []byte, ok bool) {
	streams, ok := q.awaitWork()
	var snapshots []byte
	for _, s := range streams {
		if params, some := s.snapshot(); some {
			snapshots = appendRequest(snapshots, nil, s.method, params)
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	batch = append(q.buf, snapshots...)
	q.due = false
	q.buf, q.spare = q.spare[:0], batch // spare is free again when the writer takes again
	q.inFlight, q.inFlightR, q.responses = len(batch), q.responses, 0
	return batch, ok
}

// awaitWork waits until something is queued or the queue ends, and returns the
// marked streams. ok is false if it ends.
func (q *outQueue) awaitWork() (streams []*Stream, ok bool) {
	for {
		q.mu.Lock()
		ending := q.half || q.closed
		if q.due && len(q.buf) > 0 || len(q.dirty) > 0 || ending {
			streams, q.dirty = q.dirty, nil
			for _, s := range streams {
				s.pending = false
			}
			q.mu.Unlock()
			return streams, !ending
		}
		q.mu.Unlock()
		<-q.wake // every end of the queue wakes it too
	}
}

// written says that the batch is on its way and its buffer free again.
func (q *outQueue) written() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.inFlight, q.inFlightR = 0, 0
	if cap(q.spare) > keepBytes {
		q.spare = nil
	}
	signal(q.room)
}

// halfClose lets the writer end the outgoing side after what is queued.
func (q *outQueue) halfClose() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.half = true
	signal(q.wake)
}

// finish lets the writer stop after what is queued, and reports whether this
// call was the first.
func (q *outQueue) finish() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.closed = true
	close(q.finished)
	signal(q.wake)
	return true
}

func (q *outQueue) onlyHalf() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.half && !q.closed
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Stream is a notification of which only the newest state matters.
type Stream struct {
	conn     *Conn
	method   string
	snapshot func() (json.RawMessage, bool)

	pending bool // guarded by conn.out.mu
}

// NewStream returns a stream of notifications of that method. snapshot returns
// their params, or false for none now. It is called on the writing goroutine:
// it may lock, but must not wait for anything else.
func (c *Conn) NewStream(method string, snapshot func() (json.RawMessage, bool)) *Stream {
	return &Stream{conn: c, method: method, snapshot: snapshot}
}

// Mark says that the state has changed. It never blocks.
func (s *Stream) Mark() {
	q := s.conn.out
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.pending || q.half || q.closed {
		return
	}
	s.pending = true
	q.dirty = append(q.dirty, s)
	signal(q.wake)
}
