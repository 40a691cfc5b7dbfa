// SPDX-License-Identifier: Apache-2.0

package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"
)

// Response is how a call ended: exactly one member is set.
type Response struct {
	Result json.RawMessage
	Error  json.RawMessage // the peer's error object
	Err    error           // no answer: ErrClosed, ErrTimeout, ErrQueueFull, ErrTooManyCalls or a context's error
}

// Decode returns the result, or the failure as an error (an *Error if the peer
// answered with one).
func (r Response) Decode() (json.RawMessage, error) {
	switch {
	case r.Err != nil:
		return nil, r.Err
	case r.Error != nil:
		e := new(Error)
		if err := json.Unmarshal(r.Error, e); err != nil {
			return nil, Errorf(CodeFailed, "undecodable error object")
		}
		return nil, e
	}
	return r.Result, nil
}

// Notify queues a notification. Its error is ErrClosed, ErrQueueFull (counted by
// Dropped) or that of encoding params; params nil are left out.
func (c *Conn) Notify(method string, params any) error {
	b, err := marshalParams(params)
	if err != nil {
		return err
	}
	return c.notify(method, b, false)
}

// NotifySoon is Notify for one of many: the frame may wait up to two milliseconds
// for others, so that a busy link wakes its two ends once for all of them. The
// order of frames is that of the calls all the same. params are copied.
func (c *Conn) NotifySoon(method string, params json.RawMessage) error {
	return c.notify(method, params, true)
}

func (c *Conn) notify(method string, params json.RawMessage, mayLinger bool) error {
	err := c.out.message(nil, method, params, mayLinger)
	if errors.Is(err, ErrQueueFull) {
		c.dropped.Add(1)
	}
	return err
}

// Call sends a request and waits for its end.
func (c *Conn) Call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	b, err := marshalParams(params)
	if err != nil {
		return nil, err
	}
	ended := make(chan Response, 1) // the one end of the call
	id := c.Start(method, b, 0, func(r Response) { ended <- r })
	select {
	case r := <-ended:
		return r.Decode()
	case <-ctx.Done():
		c.calls.end(id, Response{Err: ctx.Err()})
		return (<-ended).Decode()
	}
}

// Start sends a request and returns at once. done is called exactly once, on the
// read loop or a timer's goroutine, and must not block; if the request cannot be
// sent, it is called before Start returns. A timeout of 0 means none. Requests
// reach the peer in the order of the Start calls of one goroutine.
func (c *Conn) Start(method string, params json.RawMessage, timeout time.Duration, done func(Response)) (id int64) {
	id, err := c.calls.add(done)
	if err != nil {
		done(Response{Err: err})
		return id
	}
	var digits [20]byte
	if err := c.out.message(strconv.AppendInt(digits[:0], id, 10), method, params, false); err != nil {
		c.calls.end(id, Response{Err: err})
		return id
	}
	if timeout > 0 {
		c.calls.setTimer(id, time.AfterFunc(timeout, func() { c.calls.end(id, Response{Err: ErrTimeout}) }))
	}
	return id
}

func marshalParams(params any) (json.RawMessage, error) {
	if params == nil {
		return nil, nil
	}
	return Marshal(params)
}

// callTable holds the calls that wait for a response.
type callTable struct {
	max int

	mu      sync.Mutex // guards the rest; done functions run outside it
	last    int64      // id of the newest call; the first is 1 (WR-11)
	waiting map[int64]*call
	closed  bool
}

type call struct {
	done  func(Response)
	timer *time.Timer // nil without a deadline
}

func (t *callTable) init(max int) {
	t.max = max
	t.waiting = make(map[int64]*call)
}

func (t *callTable) add(done func(Response)) (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return 0, ErrClosed
	case len(t.waiting) >= t.max:
		return 0, ErrTooManyCalls
	}
	t.last++
	t.waiting[t.last] = &call{done: done}
	return t.last, nil
}

// setTimer gives a call its deadline, unless it has ended meanwhile.
func (t *callTable) setTimer(id int64, timer *time.Timer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.waiting[id]; c != nil {
		c.timer = timer
	} else {
		timer.Stop()
	}
}

// answer ends the call that a response names. Ids that are not integers, unknown
// or already answered are dropped (WR-11).
func (t *callTable) answer(id json.RawMessage, r Response) {
	if n, err := strconv.ParseInt(string(id), 10, 64); err == nil {
		t.end(n, r)
	}
}

func (t *callTable) end(id int64, r Response) {
	t.mu.Lock()
	c := t.waiting[id]
	delete(t.waiting, id)
	t.mu.Unlock()
	if c != nil {
		c.finish(r)
	}
}

// close fails every call that waits and every later one.
func (t *callTable) close() {
	t.mu.Lock()
	t.closed = true
	waiting := t.waiting
	t.waiting = nil // reads and deletes of a nil map are fine
	t.mu.Unlock()
	for _, c := range waiting {
		c.finish(Response{Err: ErrClosed})
	}
}

func (c *call) finish(r Response) {
	if c.timer != nil {
		c.timer.Stop()
	}
	c.done(r)
}

// isOrderly reports whether err only says that the link ended (WR-24). A peer that
// takes nothing is no orderly end.
func isOrderly(err error) bool {
	return err == nil || errors.Is(err, io.EOF) || isPeerGone(err) && !errors.Is(err, os.ErrDeadlineExceeded)
}

// isPeerGone reports whether nothing can be written to the peer any more.
func isPeerGone(err error) bool {
	return errors.Is(err, io.ErrClosedPipe) || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed) ||
		errors.Is(err, os.ErrDeadlineExceeded) || isBrokenPipe(err)
}
