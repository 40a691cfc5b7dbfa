// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"
)

const (
	// parkAfter is about how long an idle connection keeps its buffers.
	parkAfter = 2 * time.Second
	// lingerFor is how long a client that is still sending may take to read the
	// answer that ends its connection.
	lingerFor = 500 * time.Millisecond

	readBuffer = 4 << 10
	// bodyBuffer is what a body may have to be sent at once with its head, and
	// with a Content-Length of our own.
	bodyBuffer = 4 << 10
	// wireBuffer holds a head, a body and the framing of a chunk.
	wireBuffer = bodyBuffer + 2<<10
)

// States of a connection. Between requests whoever ends it first wins.
const (
	stateFresh  int32 = iota // has sent nothing yet
	stateActive              // has a request
	stateIdle                // waits for a further one
	stateClosed
)

// conn is one connection. All but in, state and current belong to the goroutine
// that serves it, and while a handler runs to the handler's.
type conn struct {
	s      *Server
	nc     net.Conn
	in     inbound
	remote string
	local  net.Addr

	state   atomic.Int32
	current atomic.Pointer[exchange] // its context is to end when the client leaves

	*buffers                 // nil while idle for long
	hijacked     bool        // the connection is the handler's
	header       http.Header // of responses, cleared between them
	lastPost     bool        // the last request was a POST
	writeErr     error       // the first one
	writeStale   atomic.Bool // the write deadline is that of an earlier request; changed under in.mu
	hasWriteLine atomic.Bool // a write deadline is set; changed under in.mu
	date         [29]byte    // of the last response, formatted
	dateSec      int64       // what date says
}

// buffers are lent to connections that are not idle for long.
type buffers struct {
	br   *bufio.Reader
	body []byte // of the response, not yet framed
	wire []byte // to be written
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{s: s, nc: nc, header: make(http.Header), local: nc.LocalAddr()}
	c.in.nc, c.in.left = nc, c.left
	c.in.stopped.L = &c.in.mu
	if a := nc.RemoteAddr(); a != nil {
		c.remote = a.String()
	}
	return c
}

// left ends the context of the request that is running, if any.
func (c *conn) left() {
	if x := c.current.Load(); x != nil {
		x.ctx.cancel()
	}
}

// serve takes one request after another until the connection ends.
func (c *conn) serve() {
	defer c.s.forget(c)
	defer func() {
		if !c.hijacked {
			_ = c.nc.Close()
		}
	}()
	c.borrow()
	for fresh := true; c.await(fresh) == nil; fresh = false {
		x, err := c.readRequest(fresh)
		if err != nil {
			c.refuse(err)
			break
		}
		if !c.answer(x) {
			break
		}
	}
	c.giveBack()
}

func (c *conn) borrow() {
	b, ok := c.s.buffers.Get().(*buffers)
	if !ok {
		b = &buffers{
			br:   bufio.NewReaderSize(nil, readBuffer),
			body: make([]byte, 0, bodyBuffer), wire: make([]byte, 0, wireBuffer),
		}
	}
	b.br.Reset(&c.in)
	c.buffers = b
}

// giveBack returns the buffers, none of which may be in use any more.
func (c *conn) giveBack() {
	b := c.buffers
	if b == nil {
		return
	}
	c.buffers = nil
	b.br.Reset(nil)
	b.body = b.body[:0]
	if b.wire = b.wire[:0]; cap(b.wire) > 4*wireBuffer {
		b.wire = make([]byte, 0, wireBuffer)
	}
	c.s.buffers.Put(b)
}

var errEnded = errors.New("connection was closed between requests")

// await returns once the first byte of a request is buffered.
func (c *conn) await(fresh bool) error {
	from := stateIdle
	if c.s.stopping.Load() && !fresh {
		return errEnded
	}
	switch {
	case fresh:
		from = stateFresh
		if d := c.s.ReadHeaderTimeout; d > 0 {
			_ = c.in.setDeadline(time.Now().Add(d))
		}
		if _, err := c.br.Peek(1); err != nil {
			return err
		}
	case c.br.Buffered() > 0:
		return nil // it stays active
	default:
		c.state.Store(stateIdle)
		if c.s.stopping.Load() { // Shutdown may have looked before
			return errEnded
		}
		if err := c.idle(); err != nil {
			return err
		}
	}
	if !c.state.CompareAndSwap(from, stateActive) {
		return errEnded
	}
	return nil
}

// idle waits for the next request, with buffers for a while, then without.
func (c *conn) idle() error {
	began, limit := time.Now(), c.s.IdleTimeout
	stage := parkAfter
	if limit > 0 {
		stage = min(stage, limit)
	}
	c.in.setDeadlineAbout(began, stage)
	_, err := c.br.Peek(1)
	if !errors.Is(err, os.ErrDeadlineExceeded) || limit > 0 && limit <= stage {
		return err
	}
	c.giveBack()
	var until time.Time
	if limit > 0 {
		until = began.Add(limit)
	}
	_ = c.in.setDeadline(until)
	if _, err := c.nc.Read(c.in.ahead[:]); err != nil {
		return err
	}
	c.in.giveBack(c.in.ahead[0])
	c.borrow()
	_, err = c.br.Peek(1)
	return err
}

// answer has the handler answer a request, and completes what it began. It reports
// whether the connection can have another request.
func (c *conn) answer(x *exchange) (keep bool) {
	c.current.Store(x)
	if c.s.base().Err() != nil { // the server may have looked before
		x.ctx.cancel()
	}
	if x.req.Body == http.NoBody {
		c.watch()
	}
	whole := c.handle(x)
	x.ctx.cancel()
	c.current.Store(nil)
	if x.w.hijacked {
		return false
	}
	if !whole {
		_ = c.nc.Close() // whoever else reads returns
	}
	x.body.end(!whole || x.w.close)
	c.in.unwatch()
	keep = whole && x.w.keep()
	if whole && x.body.early {
		c.linger()
	}
	x.w.c = nil // a handler that goes on meets nobody else's connection
	c.writeStale.Store(c.hasWriteLine.Load())
	clear(c.header)
	c.body, c.wire = c.body[:0], c.wire[:0]
	return keep
}

// handle calls the handler and completes the response. It reports whether that
// went well: a handler that panics has its connection cut.
func (c *conn) handle(x *exchange) (whole bool) {
	defer func() {
		if whole {
			return
		}
		x.w.disableContinue()
		if v := recover(); v != nil && v != http.ErrAbortHandler {
			c.s.log().Error("handler panicked", "addr", c.remote, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		}
	}()
	if e := first(x.req.Header["Expect"]); e != "" && !hasToken(e, "100-continue") {
		x.w.Header().Set("Connection", "close")
		x.w.WriteHeader(http.StatusExpectationFailed)
	} else {
		c.s.Handler.ServeHTTP(&x.w, &x.req)
	}
	x.ctx.cancel()
	if !x.w.hijacked {
		x.w.finish()
	}
	if form := x.req.MultipartForm; form != nil {
		_ = form.RemoveAll()
	}
	return true
}

// linger gives a client that is still sending the time to read what it was told:
// closing at once would have its system drop that.
func (c *conn) linger() {
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	c.state.Store(stateIdle) // Shutdown need not wait
	c.in.bounded = false
	_ = c.in.setDeadline(time.Now().Add(lingerFor))
	_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{&c.in}, c.wire[:cap(c.wire)])
}
