// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/tidwall/gjson"

	"nvpair/internal/upstream"
	"nvpair/services/proxy/dialect"
	"nvpair/services/proxy/route"
	"nvpair/shared/workload"
)

// Bounds of the retries of one request (PX section 11).
const (
	maxDispatches = 5
	retryDeadline = 10 * time.Minute
)

// backoff returns the wait after n dispatches: 1, 2, 4, then 8 s, a quarter more
// or less.
func backoff(n int) time.Duration {
	d := min(time.Second<<min(max(n-1, 0), 10), 8*time.Second)
	return d*3/4 + time.Duration(rand.Int64N(int64(d/2)))
}

// inference serves a request that runs a model: it is read whole, so that it can
// go to another node when one fails before its first byte.
func (x *exchange) inference() {
	held, err := x.f.p.bodies.read(x.r)
	if err != nil && !errors.Is(err, errLarge) {
		x.refuseBody(err)
		return
	}
	defer held.free()
	model := dialect.Model(x.f.engine.ID, held.bytes)
	if errors.Is(err, errLarge) {
		x.large(held, model)
		return
	}
	if model == "" {
		x.try(&task{x: x, body: held.bytes})
		return
	}
	t := &task{x: x, body: held.bytes, model: model}
	t.key = dialect.AppendKey(t.keyBuf[:0], x.f.engine.ID, model)
	if !t.known() {
		x.refuse(http.StatusBadGateway, "no available node advertises the requested model", "")
		x.failure = "no node advertises requested model"
		return
	}
	t.job = x.f.p.newJob(x.f.engine.ID, x.id, model)
	// The watch ends the job the moment the client leaves, however long the
	// engine takes to notice.
	watch := context.AfterFunc(x.r.Context(), func() {
		t.job.end(workload.StateCancelled, "client disconnected before completion")
	})
	defer watch()
	defer t.endJob()
	x.try(t)
}

func (x *exchange) refuseBody(err error) {
	switch {
	case errors.Is(err, errMemory):
		x.w.Header().Set("Retry-After", "1")
		x.refuse(http.StatusServiceUnavailable, "too many large requests at once; try again in a moment", "")
	default:
		x.w.Header().Set("Connection", "close")
		x.refuse(http.StatusBadRequest, "request body could not be read", "")
	}
}

// task is one inference request while nodes are tried.
type task struct {
	x      *exchange
	body   []byte
	model  string // as the client spelled it; "" = any node will do
	key    []byte
	keyBuf [256]byte
	job    *job // nil without a model

	dispatches int
	reserved   route.Reservation
	result     outcome
	answered   bool // the client got an answer of an engine
}

// known reports whether an owner is known, asking the own engine once if its
// inventory is old (DEC-133).
func (t *task) known() bool {
	f := t.x.f
	if f.index.Load().Owners(t.key).Len() > 0 {
		return true
	}
	return f.backend.Load() != nil && f.ask(time.Now().Add(-inventoryAge)) && f.index.Load().Owners(t.key).Len() > 0
}

// candidates returns the order to try now, with a place reserved on the first.
func (t *task) candidates() route.Candidates {
	f := t.x.f
	index := f.index.Load()
	if t.model == "" {
		return index.All()
	}
	c := index.Owners(t.key)
	if pin := f.pinned.Load(); pin != nil {
		if preferred, ok := c.Prefer(*pin); ok {
			return preferred
		}
	}
	c, t.reserved = f.p.ledger.Reserve(c)
	return c
}

// try walks the candidates, round after round, until one answers or the bounds
// are reached (PX-59 to PX-62).
func (x *exchange) try(t *task) {
	deadline := x.arrived.Add(retryDeadline)
	defer func() { t.reserved.Release() }()
	for {
		c := t.candidates()
		if c.Len() == 0 && t.dispatches == 0 && t.model == "" {
			x.refuse(http.StatusBadGateway, "no active node selected or available", "")
			x.failure = "no active node"
			return
		}
		for i := range c.Len() {
			if t.dispatches >= maxDispatches || time.Now().After(deadline) {
				break
			}
			if t.dispatch(c.At(i)) {
				return
			}
		}
		t.reserved.Release()
		if t.job != nil {
			t.job.place("")
		}
		if !x.pause(backoff(t.dispatches), deadline) {
			x.giveUp(c)
			return
		}
	}
}

// pause waits between rounds. It reports false when the client left or the
// deadline has come.
func (x *exchange) pause(d time.Duration, deadline time.Time) bool {
	if left := time.Until(deadline); left <= d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-x.r.Context().Done():
		return false
	}
}

func (x *exchange) giveUp(c route.Candidates) {
	if x.r.Context().Err() != nil {
		return // nothing is written to a client that has left
	}
	x.w.Header().Set("Retry-After", "1")
	text := "the retry deadline passed while dispatch attempts were still failing"
	if c.Len() == 0 {
		text = "no node advertising the requested model became available before the retry deadline"
	}
	x.refuse(http.StatusServiceUnavailable, text, "")
}

// dispatch tries one node. It reports whether the request is settled: answered,
// refused for good, or the client has left.
func (t *task) dispatch(node *route.Node) bool {
	x := t.x
	t.dispatches++
	t.reserved.Move(node)
	if t.job != nil {
		t.job.place(node.ID)
	}
	req := x.request()
	req.Body = t.body
	ctx := x.r.Context()
	a := x.dispatch(ctx, node, req)
	if a.resp != nil {
		defer func() { _ = a.resp.Close() }()
	}
	final := t.dispatches >= maxDispatches || time.Since(x.arrived) >= retryDeadline
	if !final && t.retry(a) {
		return ctx.Err() != nil
	}
	return t.commit(a, final)
}

// retry reports whether an uncommitted attempt moves on to the next owner
// (PX-64, DEC-50).
func (t *task) retry(a *attempt) bool {
	if a.err != nil {
		return true
	}
	if t.x.r.Header.Get("Content-Encoding") != "" {
		return false // DEC-135
	}
	switch s := a.resp.StatusCode; {
	case s == http.StatusNotFound, s == http.StatusRequestTimeout, s == http.StatusTooManyRequests:
		return t.worthRepeating()
	case s == http.StatusNotImplemented:
		return false
	case s >= 500:
		return t.worthRepeating()
	}
	return false
}

// worthRepeating reports whether the same request can fare better elsewhere or
// later: one that is no JSON cannot (DEC-135).
func (t *task) worthRepeating() bool { return gjson.ValidBytes(t.body) }

// commit passes the answer on, once its first byte is there.
func (t *task) commit(a *attempt, final bool) bool {
	x := t.x
	if a.err != nil {
		return t.lost(a.err)
	}
	buf := x.f.p.buffers.take()
	defer x.f.p.buffers.pool.Put(buf)
	n, ended, err := a.first(*buf)
	if err != nil {
		if !final {
			return x.r.Context().Err() != nil
		}
		return t.lost(err)
	}
	t.answered = true
	x.started()
	if t.job != nil {
		t.job.run()
	}
	t.result = a.serve(*buf, n, ended)
	if t.result.err != nil {
		x.failure = t.result.err.Error()
	}
	if t.result.abort {
		t.endJob()
		t.reserved.Release()
		panic(http.ErrAbortHandler) // cuts the connection: the client must not take a part for the whole
	}
	return true
}

// lost answers when the last try failed before any byte.
func (t *task) lost(err error) bool {
	x := t.x
	if x.r.Context().Err() == nil {
		x.refuse(http.StatusBadGateway, fmt.Sprintf("upstream error: %v", errText(err)), "")
	}
	return true
}

// errText is an error's text without what only programs need.
func errText(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return errors.New("the engine closed the connection before its answer")
	}
	return err
}

// endJob reports how the job ended (PX-81).
func (t *task) endJob() {
	if t.job == nil {
		return
	}
	x := t.x
	switch {
	case x.r.Context().Err() != nil && !(t.answered && t.result.err == nil):
		t.job.end(workload.StateCancelled, "request cancelled before completion")
	case t.result.gone:
		t.job.end(workload.StateCancelled, "client connection lost: "+t.result.err.Error())
	case t.result.err != nil:
		t.job.end(workload.StateFailed, t.result.err.Error())
	case !t.answered:
		t.job.end(workload.StateFailed, x.failure)
	case x.status >= 300:
		t.job.end(workload.StateFailed, fmt.Sprintf("upstream returned HTTP %d", x.status))
	default:
		t.job.end(workload.StateCompleted, "")
	}
}

// large passes on a body that is too large to be held, to one node and once
// (DEC-10, DEC-41).
func (x *exchange) large(held *body, model string) {
	if model == "" || x.r.ContentLength > maxStreamed {
		x.w.Header().Set("Connection", "close")
		x.refuse(http.StatusRequestEntityTooLarge, "request body exceeds 32 MiB limit", "")
		x.target = "rejected"
		return
	}
	var buf [256]byte
	c := x.f.index.Load().Owners(dialect.AppendKey(buf[:0], x.f.engine.ID, model))
	if c.Len() == 0 {
		x.refuse(http.StatusBadGateway, "no available node advertises the requested model", "")
		return
	}
	req := x.request()
	streamBody(req, x.r, held.bytes)
	x.once(c.At(0), req)
}

// streamBody makes a request's body one that is read from the client as it is
// sent, after what was read already.
func streamBody(req *upstream.Request, r *http.Request, read []byte) {
	req.Stream, req.Length = r.Body, r.ContentLength
	if len(read) > 0 {
		req.Stream = io.MultiReader(newReader(read), r.Body)
	}
	if r.ContentLength < 0 {
		req.Stream = io.LimitReader(req.Stream, maxStreamed)
	}
}
