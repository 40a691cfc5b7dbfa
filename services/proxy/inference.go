// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"nvpair/internal/jsoncheck"
	"nvpair/services/proxy/dialect"
	"nvpair/services/proxy/route"
	"nvpair/shared/workload"
)

// maxDispatches bounds the tries of one request (PX section 11).
const maxDispatches = 5

// inference serves a request that runs a model: it is read whole, so that it can
// go to another node when one fails before its first byte.
func (x *exchange) inference() {
	if x.r.Header.Get("Content-Encoding") != "" {
		x.ownOnly() // DEC-135: its model cannot be read
		return
	}
	held, err := x.f.p.bodies.read(x.r)
	large := errors.Is(err, errLarge)
	if err != nil && !large {
		x.refuseBody(err)
		return
	}
	defer held.free()
	model := dialect.Model(x.f.engine.ID, held.bytes)
	if large && (model == "" || x.r.ContentLength > x.f.p.cfg.limits.streamed) {
		x.refuseBody(errLarge)
		x.target = "rejected"
		return
	}
	if model == "" {
		x.try(&task{x: x, held: held})
		return
	}
	t := &task{x: x, held: held, once: large, model: model}
	t.place, t.continues = x.f.p.affinity.of(x, held.bytes)
	t.key = dialect.AppendKey(t.keyBuf[:0], x.f.engine.ID, model)
	if !t.known() {
		x.refuse(http.StatusBadGateway, "no available node advertises the requested model", "")
		x.failure = "no node advertises requested model"
		return
	}
	t.job = x.f.newJob(x.id, model)
	// The watch ends the job the moment the client leaves, however long the
	// engine takes to notice.
	watch := context.AfterFunc(x.r.Context(), func() {
		if !x.whole.Load() { // otherwise the outcome of the last write decides
			t.job.end(workload.StateCancelled, "client disconnected before completion")
		}
	})
	defer watch()
	defer t.endJob()
	if large {
		x.tryOnce(t)
		return
	}
	x.try(t)
}

func (x *exchange) refuseBody(err error) {
	switch {
	case errors.Is(err, errLarge):
		x.w.Header().Set("Connection", "close")
		x.refuse(http.StatusRequestEntityTooLarge, "request body exceeds 32 MiB limit", "")
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
	held   *body
	once   bool   // held is only the beginning of the body, whose rest can be read once
	model  string // as the client spelled it; "" = any node will do
	key    []byte
	keyBuf [256]byte
	job    *job // nil without a model

	continues bool  // a response that was made at place
	place     place // zero unless continues

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
	return f.own.Load() && f.ask(time.Now().Add(-inventoryAge)) && f.index.Load().Owners(t.key).Len() > 0
}

// candidates returns the order to try now, with a place reserved on the first.
func (t *task) candidates() route.Candidates {
	f := t.x.f
	index := f.index.Load()
	if t.model == "" {
		return index.All()
	}
	c := index.Owners(t.key)
	if t.continues {
		if preferred, ok := t.place.prefer(c); ok {
			return preferred
		}
	}
	if pin := f.pinned.Load(); pin != nil {
		if preferred, ok := c.Prefer(*pin); ok {
			return preferred
		}
	}
	return t.reserve()
}

// reserve puts the least loaded owner first. The index may be replaced by the next
// ranking's between the look and the reservation; then it is looked at again.
func (t *task) reserve() route.Candidates {
	f := t.x.f
	for {
		c, reserved, current := f.p.ledger.Reserve(f.index.Load().Owners(t.key))
		if current {
			t.reserved = reserved
			return c
		}
	}
}

// try walks the candidates, round after round, until one answers or the bounds
// are reached (PX-59 to PX-62).
func (x *exchange) try(t *task) {
	limits := x.f.p.cfg.limits
	deadline := x.arrived.Add(limits.retryDeadline)
	defer func() { t.reserved.Release() }()
	for {
		c := t.candidates()
		if c.Len() == 0 && t.dispatches == 0 && t.model == "" {
			x.refuse(http.StatusBadGateway, "no active node selected or available", "")
			x.failure = "no active node"
			return
		}
		if t.round(c, deadline) {
			return
		}
		t.reserved.Release()
		if t.job != nil {
			t.job.place("")
		}
		if !x.pause(limits.backoff(t.dispatches), deadline) {
			x.giveUp(c)
			return
		}
	}
}

// round tries each candidate once, those that are dead only if there is no other.
// It reports whether the request is settled.
func (t *task) round(c route.Candidates, deadline time.Time) bool {
	for _, dead := range [...]bool{false, true} {
		tried := false
		for i := range c.Len() {
			node := c.At(i)
			if t.x.f.vigil.isDead(node) != dead {
				continue
			}
			if t.dispatches >= maxDispatches || time.Now().After(deadline) {
				return false
			}
			tried = true
			if t.dispatch(node) {
				return true
			}
		}
		if tried {
			return false
		}
	}
	return false
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
	if t.once {
		streamBody(req, x.r, t.held.bytes, x.f.p.cfg.limits.streamed)
	} else {
		req.Body = t.held.bytes
	}
	a := x.dispatch(node, req)
	defer a.close()
	final := t.dispatches >= maxDispatches || time.Since(x.arrived) >= x.f.p.cfg.limits.retryDeadline
	if !final && t.retry(a) {
		return x.r.Context().Err() != nil
	}
	return t.commit(a, final || t.once)
}

// retry reports whether an uncommitted attempt moves on to the next owner
// (PX-64, DEC-50).
func (t *task) retry(a *attempt) bool {
	if t.once {
		return a.unsent
	}
	if a.err != nil {
		return true
	}
	switch s := a.resp.StatusCode; {
	case s == http.StatusNotFound && (t.model == "" || strings.HasPrefix(a.resp.Header.Get("Content-Type"), "text/plain")):
		return false // no such route, or no model named, rather than a model that is elsewhere
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
func (t *task) worthRepeating() bool { return jsoncheck.Valid(t.held.bytes) }

// commit passes the answer on, once its first byte is there.
func (t *task) commit(a *attempt, final bool) bool {
	x := t.x
	if a.err != nil {
		return t.lost(a.err)
	}
	buf := x.f.p.buffers.take(a.resp.ContentLength)
	defer buf.giveBack()
	n, ended, err := a.first(buf.bytes)
	switch {
	case err != nil && !final:
		return x.r.Context().Err() != nil
	case errors.Is(err, errBudget):
		x.refuse(http.StatusGatewayTimeout, "upstream error: upstream sent no response body within the first-byte budget", "")
		return true
	case err != nil:
		return t.lost(err)
	}
	t.answered = true
	t.held.free() // DEC-145: an answer may take long
	x.started()
	if t.job != nil {
		t.job.run()
	}
	x.status = a.resp.StatusCode
	a.naming = x.f.p.affinity.watch(x, place{a.node.ID, a.node.Addrs[0]})
	t.result = a.serve(buf, n, ended)
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
	t.x.fail(err)
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
