// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"nvpair/services/proxy/dialect"
	"nvpair/shared/facade"
)

// hopHeader names the processes that a request to another node has passed: one that
// comes back is refused. A node given by name or behind a relay can turn out to be
// this machine.
const hopHeader = "X-Pair-Hop"

// exchange is one client's request on its way through a facade.
type exchange struct {
	f       *facadeServer
	w       http.ResponseWriter
	r       *http.Request
	id      string
	arrived time.Time

	// What the end event tells.
	nodeID    string
	target    string
	status    int
	committed time.Time // zero without an answer's first byte
	failure   string

	whole atomic.Bool // the bytes that complete the answer are on their way to the client
}

// ServeHTTP takes every plaintext request of the facade: who asks is checked
// before anything of the body is read (PX-36, PX-37, DEC-13, DEC-44).
func (f *facadeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{f: f, w: w, r: r, arrived: time.Now()}
	switch {
	case !loopbackSource(r.RemoteAddr):
		x.turnAway(http.StatusForbidden,
			"plaintext requests are accepted only from loopback; cluster peers must use the mTLS ingress", "loopback-only")
		return
	case !f.hostAllowed(r.Host):
		x.turnAway(http.StatusMisdirectedRequest,
			"this address serves localhost only; list the name in NVPAIR_ALLOWED_HOSTS to allow it", "host-not-allowed")
		return
	case r.Header.Get("X-NVPAIR-Engine-Identity-Probe") == "1":
		x.turnAway(http.StatusConflict, "the compatibility facade is not the "+f.engine.DisplayName+" engine", "proxy-facade")
		return
	}
	if slices.Contains(r.Header[hopHeader], f.p.runID) {
		x.turnAway(http.StatusLoopDetected, "this request has been here already: one of this node's other nodes leads back to it", "loop")
		return
	}
	x.id = strconv.FormatInt(f.requests.Add(1), 10)
	defer x.report()
	defer x.recovered()
	switch class := dialect.Classify(f.engine.ID, r.Method, r.URL.Path); class {
	case dialect.Inference:
		x.inference()
	case dialect.ListModels, dialect.ListTags:
		x.list(class)
	default:
		x.control(class)
	}
	if x.status == 0 {
		panic(http.ErrAbortHandler) // the client left; returning would send an empty 200 (PX-97)
	}
}

// recovered ends this request, and no other, after a fault of ours (PX-7). The
// server closes the connection without a word, as for http.ErrAbortHandler.
func (x *exchange) recovered() {
	switch v := recover(); v {
	case nil:
	case http.ErrAbortHandler:
		panic(v)
	default:
		x.f.log.Error("request handler panicked", "id", x.id, "path", x.r.URL.Path, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		x.failure = "internal error"
		panic(http.ErrAbortHandler)
	}
}

func loopbackSource(remote string) bool {
	a, err := netip.ParseAddrPort(remote)
	return err == nil && a.Addr().Unmap().IsLoopback()
}

// hostAllowed lets through the names of this machine's loopback and those the
// user listed, with any port: a page under a rebound name must not reach an
// engine.
func (f *facadeServer) hostAllowed(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.Trim(name, "[]"))
	if name == "localhost" || name == "::1" || f.p.allowed[name] {
		return true
	}
	a, err := netip.ParseAddr(name)
	return err == nil && a.Is4() && a.IsLoopback()
}

// turnAway refuses a request whose body stays unread. net/http would wait for it,
// without end, so the connection is closed, a body on its way or not.
func (x *exchange) turnAway(status int, message, code string) {
	if x.r.ContentLength != 0 {
		x.w.Header().Set("Connection", "close") // no wait before the answer
		_ = http.NewResponseController(x.w).SetReadDeadline(time.Now().Add(headerTimeout))
	}
	x.refuse(status, message, code)
}

// refuse answers with an error of our own. Nothing is written to a client that has
// left (PX-97).
func (x *exchange) refuse(status int, message, code string) {
	if x.r.Context().Err() != nil {
		x.failure = message
		return
	}
	h := x.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	x.w.WriteHeader(status)
	_, _ = x.w.Write(dialect.ErrorBody(x.r.URL.Path, status, message, code)) // a client that left needs no answer
	x.status, x.failure = status, message
}

// started tells that an answer has begun.
func (x *exchange) started() {
	x.committed = time.Now()
	x.tellStarted()
}

func (x *exchange) tellStarted() {
	e := x.event()
	x.tell(facade.NotifyRequestStarted, func(b []byte) []byte { return appendStarted(b, &e) })
}

// tell sends a notification of this request.
func (x *exchange) tell(method string, params func([]byte) []byte) {
	p := x.f.p
	buf, _ := p.params.Get().(*[]byte)
	if buf == nil {
		buf = new([]byte)
	}
	*buf = params((*buf)[:0])
	if err := p.link.NotifySoon(x.f.engine.ID+":"+method, *buf); err != nil { // the link copies them
		x.f.log.Debug("notification dropped", "method", method, "err", err)
	}
	p.params.Put(buf)
}

func (x *exchange) event() facade.RequestStarted {
	return facade.RequestStarted{
		ID: x.id, NodeID: x.nodeID, Method: x.r.Method, Path: x.r.URL.Path, Target: x.target,
	}
}

// report tells how the request ended.
func (x *exchange) report() {
	e := facade.RequestEnded{
		RequestStarted: x.event(), Status: x.status,
		DurationMillis: time.Since(x.arrived).Milliseconds(), Error: x.failure,
	}
	if !x.committed.IsZero() {
		ttfb := x.committed.Sub(x.arrived).Milliseconds()
		e.TTFBMillis = &ttfb
	}
	x.tell(facade.NotifyRequest, func(b []byte) []byte { return appendEnded(b, &e) })
}
