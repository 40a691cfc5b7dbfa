// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
)

// response is the http.ResponseWriter of one request. A short response stays in
// conn.body until the handler returns, and then leaves with its head in one write.
type response struct {
	c   *conn // nil once the request is over
	req *http.Request
	x   *exchange

	// About the request, which the handler may change.
	isHead, http11, keep10, wantsClose bool

	status     int
	wrote      bool // the head is decided: its own lines are in conn.wire
	sent       bool // the framing too
	hijacked   bool
	fullDuplex bool
	close      bool // the connection ends with this response
	chunked    bool
	silent     bool  // no body is sent, for HEAD
	length     int64 // as the handler declared, or -1
	written    int64 // bytes of the body
	head       headFacts
	trailers   []string // names that the handler announced

	awaited    atomic.Bool // the client waits for "100 Continue"
	continueMu sync.Mutex  // held while that is written, and to clear awaited
}

var (
	_ http.ResponseWriter = (*response)(nil)
	_ http.Flusher        = (*response)(nil)
	_ http.Hijacker       = (*response)(nil)
)

func (w *response) start(c *conn, x *exchange) {
	r := &x.req
	connection := first(r.Header["Connection"])
	w.c, w.x, w.req, w.length = c, x, r, -1
	w.isHead, w.http11 = r.Method == http.MethodHead, r.ProtoAtLeast(1, 1)
	w.keep10 = r.ProtoMajor == 1 && r.ProtoMinor == 0 && hasToken(connection, "keep-alive")
	w.wantsClose = r.Close || hasToken(connection, "close")
}

// Header returns the header to be sent. It is of no use after the handler has
// returned: the map is the next response's then.
func (w *response) Header() http.Header {
	if w.c == nil {
		return make(http.Header)
	}
	return w.c.header
}

// WriteHeader decides the head. A status from 100 to 199 but 101 is sent at once,
// and the head is still to come.
func (w *response) WriteHeader(status int) {
	switch {
	case w.over():
		return
	case w.wrote:
		w.c.s.log().Debug("handler wrote a head twice", "addr", w.c.remote)
		return
	case status < 100 || status > 999:
		panic(fmt.Sprintf("httpserve: status %d is none", status))
	}
	informational := status < 200 && status != http.StatusSwitchingProtocols
	if !informational || status == http.StatusContinue {
		w.disableContinue()
	}
	if informational {
		w.continueMu.Lock() // a reader of the body may be sending a 100
		defer w.continueMu.Unlock()
		w.c.wire = w.appendInformational(w.c.wire[:0], status)
		_ = w.flushWire()
		return
	}
	w.wrote, w.status = true, status
	w.c.wire = w.appendHead(w.c.wire[:0])
}

// over reports that nothing more can be written because the handler has returned
// or the connection is somebody else's.
func (w *response) over() bool { return w.c == nil || w.hijacked }

func (w *response) Write(p []byte) (int, error) {
	if err := w.admit(len(p)); err != nil || len(p) == 0 {
		return 0, err
	}
	if len(p) <= cap(w.c.body)-len(w.c.body) {
		w.c.body = append(w.c.body, p...)
		return len(p), nil
	}
	return w.overflow(p)
}

func (w *response) WriteString(s string) (int, error) {
	if err := w.admit(len(s)); err != nil || s == "" {
		return 0, err
	}
	if len(s) <= cap(w.c.body)-len(w.c.body) {
		w.c.body = append(w.c.body, s...)
		return len(s), nil
	}
	return w.overflow([]byte(s))
}

// admit decides the head if that is open, and refuses bytes that have no place in
// the body.
func (w *response) admit(n int) error {
	if w.over() {
		return http.ErrHijacked
	}
	if !w.wrote {
		w.WriteHeader(http.StatusOK)
	}
	if n == 0 {
		return nil
	}
	if !bodyAllowed(w.status) {
		return http.ErrBodyNotAllowed
	}
	w.written += int64(n) // refused bytes too: the body is then not what was declared
	if w.length >= 0 && w.written > w.length {
		return http.ErrContentLength
	}
	return w.c.writeErr
}

// overflow sends the body so far and what exceeds the buffer.
func (w *response) overflow(p []byte) (n int, err error) {
	if room := cap(w.c.body) - len(w.c.body); len(w.c.body) > 0 {
		w.c.body = append(w.c.body, p[:room]...)
		n, p = room, p[room:]
		if err := w.sendBody(); err != nil {
			return n, err
		}
	}
	if len(p) < cap(w.c.body) {
		w.c.body = append(w.c.body, p...)
		return n + len(p), nil
	}
	if err := w.pass(p); err != nil {
		return n, err
	}
	return n + len(p), nil
}

// sendBody sends what is in conn.body.
func (w *response) sendBody() error {
	err := w.pass(w.c.body)
	w.c.body = w.c.body[:0]
	return err
}

// pass sends bytes of the body, behind the head if that has not been sent.
func (w *response) pass(p []byte) error {
	w.frame(p, false)
	if w.silent || len(p) <= bodyBuffer {
		w.appendBody(p)
		return w.flushWire()
	}
	if w.chunked {
		w.appendChunkSize(len(p))
	}
	if err := w.flushWire(); err != nil {
		return err
	}
	if w.chunked {
		w.c.wire = append(w.c.wire, "\r\n"...) // leaves with whatever comes next
	}
	return w.c.send(p)
}

func (w *response) appendBody(p []byte) {
	switch {
	case w.silent || len(p) == 0:
	case w.chunked:
		w.appendChunkSize(len(p))
		w.c.wire = append(append(w.c.wire, p...), "\r\n"...)
	default:
		w.c.wire = append(w.c.wire, p...)
	}
}

func (w *response) appendChunkSize(n int) {
	w.c.wire = append(strconv.AppendUint(w.c.wire, uint64(n), 16), "\r\n"...)
}

func (w *response) flushWire() error {
	if len(w.c.wire) == 0 {
		return w.c.writeErr
	}
	err := w.c.send(w.c.wire)
	w.c.wire = w.c.wire[:0]
	return err
}

func (w *response) Flush() { _ = w.FlushError() }

// FlushError sends what was written so far.
func (w *response) FlushError() error {
	if w.over() {
		return http.ErrHijacked
	}
	if !w.wrote {
		w.WriteHeader(http.StatusOK)
	}
	w.frame(w.c.body, false)
	w.appendBody(w.c.body)
	w.c.body = w.c.body[:0]
	return w.flushWire()
}

// finish completes the response of a handler that has returned.
func (w *response) finish() {
	if !w.wrote {
		w.WriteHeader(http.StatusOK)
	}
	w.frame(w.c.body, true)
	w.appendBody(w.c.body)
	if w.chunked && !w.silent {
		w.appendLastChunk()
	}
	_ = w.flushWire()
}

// keep reports whether the connection can have another request.
func (w *response) keep() bool {
	short := !w.isHead && w.length >= 0 && bodyAllowed(w.status) && w.length != w.written
	return !w.close && !short && w.c.writeErr == nil && !w.x.body.early && !w.c.s.stopping.Load()
}
