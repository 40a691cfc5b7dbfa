// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"nvpair/internal/upstream"
	"nvpair/services/proxy/dialect"
	"nvpair/services/proxy/route"
)

// A stream of tokens needs little memory, and there may be thousands; a long
// answer that is there at once goes quicker in large pieces.
const (
	smallCopy = 4 << 10
	largeCopy = 32 << 10
)

// copyBuffers lends the memory of running answers.
type copyBuffers struct{ small, large sync.Pool }

// copyBuffer is the memory of one answer.
type copyBuffer struct {
	from  *copyBuffers
	bytes []byte
	lent  *[]byte
}

// take lends a buffer for an answer of that length, negative for unknown.
func (b *copyBuffers) take(length int64) *copyBuffer {
	c := &copyBuffer{from: b}
	c.lend(length > smallCopy)
	return c
}

func (c *copyBuffer) lend(large bool) {
	pool, size := &c.from.small, smallCopy
	if large {
		pool, size = &c.from.large, largeCopy
	}
	c.lent, _ = pool.Get().(*[]byte)
	if c.lent == nil {
		fresh := make([]byte, size)
		c.lent = &fresh
	}
	c.bytes = *c.lent
}

// filled changes to a larger buffer after a read that filled this one. The bytes
// must have been used.
func (c *copyBuffer) filled() {
	if len(c.bytes) < largeCopy {
		c.giveBack()
		c.lend(true)
	}
}

func (c *copyBuffer) giveBack() {
	if len(c.bytes) < largeCopy {
		c.from.small.Put(c.lent)
	} else {
		c.from.large.Put(c.lent)
	}
}

// attempt is one dispatch to one node. Its context is derived from the request's:
// one that ends while the request's goes on is the node's failure, not the
// client's leaving (PX-68).
type attempt struct {
	x      *exchange
	ctx    context.Context
	node   *route.Node
	addr   string
	flight *flight
	budget budget
	resp   *upstream.Response
	err    error
	naming naming // of the answer
	unsent bool   // no connection was made, so nothing of a body was used up
}

// dispatch sends the request to a node and waits for the head of its answer. The
// caller closes the attempt.
func (x *exchange) dispatch(node *route.Node, req *upstream.Request) *attempt {
	p := x.f.p
	a := &attempt{x: x, node: node, addr: p.targets.address(node)}
	x.nodeID, x.target = node.ID, a.addr
	req.Addr, req.Host = a.addr, a.addr
	if !node.Own {
		req.Header[hopHeader] = append(slices.Clip(req.Header[hopHeader]), p.runID)
	}
	a.ctx, a.flight = x.f.vigil.begin(x.r.Context(), node)
	a.ctx = a.budget.start(a.ctx, p.cfg.HeaderTimeout)
	a.resp, a.err = p.targets.pool(node).Do(a.ctx, req)
	switch {
	case a.err == nil:
		a.flight.answered(false)
	case x.r.Context().Err() == nil: // a client that leaves says nothing about the node
		var dialing *upstream.NotConnectedError
		a.unsent = errors.As(a.err, &dialing)
		p.targets.failed(node, a.addr)
		a.err = a.cause(a.err)
	}
	return a
}

// cause returns why the attempt was ended from this side, or err.
func (a *attempt) cause(err error) error {
	if a.ctx.Err() != nil && a.x.r.Context().Err() == nil {
		return context.Cause(a.ctx)
	}
	return err
}

// close gives back what the attempt holds. It may be called more than once.
func (a *attempt) close() {
	if a.resp != nil {
		_ = a.resp.Close()
	}
	a.budget.stop()
	a.flight.end()
}

// budget is the time a node has for the head of its answer, and again for the
// first byte of its body (PX-75), where the user has set one (DEC-42). The zero
// value is without limit.
type budget struct {
	timer  *time.Timer
	each   time.Duration
	cancel context.CancelCauseFunc
}

// errBudget ends an attempt that spent its budget.
var errBudget = errors.New("upstream sent nothing within the response header timeout")

func (b *budget) start(ctx context.Context, each time.Duration) context.Context {
	if each <= 0 {
		return ctx
	}
	b.each = each
	ctx, b.cancel = context.WithCancelCause(ctx)
	b.timer = time.AfterFunc(each, func() { b.cancel(errBudget) })
	return ctx
}

// again begins the budget anew.
func (b *budget) again() {
	if b.timer != nil {
		b.timer.Reset(b.each)
	}
}

// met ends the wait; the answer may take as long as it needs.
func (b *budget) met() {
	if b.timer != nil {
		b.timer.Stop()
	}
}

func (b *budget) stop() {
	b.met()
	if b.cancel != nil {
		b.cancel(nil)
	}
}

// request makes the upstream request of a client's, without its body.
func (x *exchange) request() *upstream.Request {
	r := x.r
	target := r.URL.RequestURI()
	req := &upstream.Request{Method: r.Method, Target: target, Header: forwardHeader(r.Header)}
	if ip, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		req.Header["X-Forwarded-For"] = append(slices.Clip(req.Header["X-Forwarded-For"]), ip)
	}
	return req
}

// forwardHeader is a header without what belongs to one connection (RFC 9110
// section 7.6.1) and without framing, which is built anew (DEC-134).
func forwardHeader(h http.Header) http.Header {
	out := make(http.Header, len(h)+1)
	for name, values := range h {
		switch name {
		case "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
			"Content-Length", "Proxy-Authenticate", "Proxy-Authorization", "Expect":
			continue
		}
		out[name] = values
	}
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			delete(out, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	return out
}

// first reads the first bytes of the answer's body: an inference answer is
// committed with them, not with its head (PX-74). An error before them leaves
// the attempt open to another node.
func (a *attempt) first(buf []byte) (n int, ended bool, err error) {
	a.budget.again()
	n, err = a.resp.Body.Read(buf)
	for n == 0 && err == nil {
		n, err = a.resp.Body.Read(buf)
	}
	a.budget.met()
	switch {
	case n > 0:
		return n, errors.Is(err, io.EOF), nil
	case errors.Is(err, io.EOF):
		return 0, true, nil
	}
	return 0, false, a.cause(err)
}

// serve gives the answer to the client: its head, the n bytes in buf, and the
// rest as it comes. It reports how the stream ended.
func (a *attempt) serve(buf *copyBuffer, n int, ended bool) outcome {
	x := a.x
	x.status = a.resp.StatusCode
	a.budget.met()
	a.flight.answered(true)
	a.copyHead()
	s := &stream{
		x: x, rc: http.NewResponseController(x.w),
		flush: a.resp.ContentLength < 0 || strings.HasPrefix(a.resp.Header.Get("Content-Type"), "text/event-stream"),
		node:  a.node.ID,
		left:  a.resp.ContentLength,
		named: &a.naming,
	}
	if a.resp.StatusCode < 300 && a.resp.Header.Get("Content-Encoding") == "" { // no mark is seen in encoded bytes
		s.end = dialect.NewTerminator(a.resp.Header.Get("Content-Type"), x.r.URL.Path)
	}
	x.w.WriteHeader(a.resp.StatusCode)
	switch {
	case n > 0 && !s.write(buf.bytes[:n]):
		return s.outcome(nil)
	case n == 0 && !ended: // a head that is passed on before its body (PX-73)
		s.arm()
		if s.writeErr = s.push(); s.writeErr != nil {
			return s.outcome(nil)
		}
	}
	for !ended {
		if n == len(buf.bytes) {
			buf.filled()
		}
		var err error
		n, err = a.resp.Body.Read(buf.bytes)
		if n > 0 && !s.write(buf.bytes[:n]) {
			return s.outcome(nil)
		}
		if err != nil {
			a.copyTrailers()
			return s.outcome(err)
		}
	}
	return s.outcome(io.EOF)
}

func (a *attempt) copyHead() {
	out := a.x.w.Header()
	for name, values := range forwardHeader(a.resp.Header) {
		out[name] = values
	}
	if a.resp.ContentLength >= 0 {
		out["Content-Length"] = a.resp.Header["Content-Length"]
	}
	for _, name := range [...]string{"Date", "Content-Type"} {
		if out[name] == nil {
			out[name] = nil // what the engine did not send is not made up
		}
	}
	delete(out, "X-Pair-Node") // ours to say (DEC-45)
	if a.node.Trust {
		out.Set("X-Pair-Node", a.node.ID)
	}
}

// copyTrailers passes on what followed the body.
func (a *attempt) copyTrailers() {
	for name, values := range forwardHeader(a.resp.Trailer) {
		a.x.w.Header()[http.TrailerPrefix+name] = values
	}
}

// stream is an answer on its way to the client.
type stream struct {
	x        *exchange
	rc       *http.ResponseController
	flush    bool
	node     string
	end      *dialect.Terminator
	named    *naming
	left     int64     // bytes to come, negative when the engine did not say
	passed   bool      // the client has all that makes the answer whole
	deadline time.Time // of writes, as last set
	writeErr error
}

// write passes bytes on, at once where the client waits for them.
func (s *stream) write(b []byte) bool {
	s.arm()
	s.end.Write(b)
	s.named.write(b)
	s.left -= int64(len(b))
	whole := s.left == 0 || s.end.Seen()
	if whole {
		s.x.whole.Store(true) // before the client can have them and leave
	}
	if _, s.writeErr = s.x.w.Write(b); s.writeErr == nil && s.flush {
		s.writeErr = s.push()
	}
	if s.writeErr != nil {
		return false
	}
	s.passed = s.passed || whole
	s.x.f.p.activity.seen(s.node)
	return true
}

// arm gives the client its time for the next write. The deadline is moved at most
// every few seconds: a timer for every chunk would cost more than the chunk.
func (s *stream) arm() {
	timeout := s.x.f.p.cfg.limits.writeTimeout
	if now := time.Now(); s.deadline.Sub(now) < timeout*5/6 {
		s.deadline = now.Add(timeout)
		_ = s.rc.SetWriteDeadline(s.deadline) // not supported means no limit
	}
}

func (s *stream) push() error {
	if err := s.rc.Flush(); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// outcome is how an exchange ended after its commit.
type outcome struct {
	err   error // nil: the engine's answer was passed on whole
	abort bool  // the client's connection must be cut: it cannot tell a short answer otherwise
	gone  bool  // the client left or stopped reading
}

var (
	errNoTerminator = errors.New("stream ended without its terminator")
	errCut          = errors.New("upstream stream aborted mid-response")
)

func (s *stream) outcome(readErr error) outcome {
	switch {
	case s.passed && (s.writeErr != nil || s.x.r.Context().Err() != nil):
		return outcome{} // it left with the whole answer (DEC-142)
	case s.writeErr != nil:
		return outcome{err: s.writeErr, abort: true, gone: true}
	case readErr != nil && !errors.Is(readErr, io.EOF):
		if s.x.r.Context().Err() != nil {
			return outcome{err: s.x.r.Context().Err(), abort: true, gone: true}
		}
		s.arm()
		_ = s.push() // what is there: a client that saw nothing might ask again
		return outcome{err: errCut, abort: true}
	case !s.end.Whole():
		return outcome{err: errNoTerminator}
	}
	return outcome{}
}
