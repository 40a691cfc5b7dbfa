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
	"time"

	"nvpair/internal/upstream"
	"nvpair/services/proxy/dialect"
	"nvpair/services/proxy/route"
)

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
