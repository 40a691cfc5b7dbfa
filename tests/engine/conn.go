// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"time"
)

// past is a deadline that ends a blocked read at once.
var past = time.Unix(1, 0)

// lingerTime is how long the rest of an unread body is taken in after an early
// answer, so that the answer is not destroyed by a reset.
const lingerTime = 500 * time.Millisecond

// conn is one client connection. Its fields belong to the goroutine of serve,
// except br while a watcher runs.
type conn struct {
	e     *Engine
	nc    net.Conn
	id    int64
	br    *bufio.Reader
	x     exchange
	turn  int // requests so far
	timer *time.Timer

	// The watcher, see watch. gone is nil without one.
	gone     chan struct{} // closed when the client left
	goneWith error         // set before gone is closed
	stopped  chan struct{} // closed when the watcher has ended
}

func newConn(e *Engine, nc net.Conn, id int64) *conn {
	c := &conn{e: e, nc: nc, id: id, br: bufio.NewReaderSize(nc, 16<<10)}
	c.x.e, c.x.c = e, c
	return c
}

// serve answers the requests of the connection until one of them ends it.
func (c *conn) serve() {
	defer c.e.forget(c)
	defer func() { _ = c.nc.Close() }()
	for {
		if !c.awaitRequest() {
			return
		}
		c.turn++
		x := &c.x
		x.reset()
		status, err := c.readHead()
		if err != nil {
			return
		}
		x.begin()
		if status != 0 {
			x.close = true
			x.empty(status)
		} else {
			x.serve()
		}
		c.unwatch()
		x.end()
		if x.err != nil {
			if f := x.fatal; f != nil {
				f.end(c.nc)
			}
			return
		}
		if x.close {
			c.linger()
			return
		}
	}
}

// awaitRequest waits for the first byte of a request.
func (c *conn) awaitRequest() bool {
	idle := c.e.cfg.IdleTimeout > 0 && c.turn > 0
	if idle {
		_ = c.nc.SetReadDeadline(time.Now().Add(c.e.cfg.IdleTimeout))
	}
	if _, err := c.br.Peek(1); err != nil {
		return false
	}
	if idle {
		_ = c.nc.SetReadDeadline(time.Time{})
	}
	if c.turn > 0 {
		if f := c.e.Faults.atConnection(AtFirstByte); f != nil {
			f.end(c.nc)
			return false
		}
	}
	return true
}

// linger closes the connection so that what was written still arrives.
func (c *conn) linger() {
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || c.x.bodyDone {
		return
	}
	_ = half.CloseWrite()
	_ = c.nc.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.Copy(io.Discard, c.br)
}

// watch starts to look for the client's leaving, if that is not done already: it
// reads ahead, into the buffer of br. A client that sends more meanwhile, the
// body or further requests, is watched up to a full buffer.
func (c *conn) watch() {
	if c.gone != nil {
		return
	}
	gone, stopped := make(chan struct{}), make(chan struct{})
	c.gone, c.stopped, c.goneWith = gone, stopped, nil
	go func() { // ended by unwatch, which serve calls after every request
		defer close(stopped)
		for {
			_, err := c.br.Peek(c.br.Buffered() + 1)
			switch {
			case err == nil:
			case errors.Is(err, bufio.ErrBufferFull), errors.Is(err, os.ErrDeadlineExceeded):
				return
			default:
				c.goneWith = err
				close(gone)
				return
			}
		}
	}()
}

// unwatch ends the watcher; whoever reads from br calls it first.
func (c *conn) unwatch() {
	if c.gone == nil {
		return
	}
	_ = c.nc.SetReadDeadline(past)
	<-c.stopped // the deadline ends its read
	_ = c.nc.SetReadDeadline(time.Time{})
	c.gone, c.stopped = nil, nil
}
