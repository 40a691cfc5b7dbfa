// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// requestContext is the context of one request: part of its exchange, so that it
// costs no allocation of its own. Package context derives from it without a
// goroutine because it has AfterFunc.
type requestContext struct {
	base  context.Context // for values and deadline; its end is passed on by the server
	local net.Addr

	mu    sync.Mutex    // guards the rest
	done  chan struct{} // made when it is first asked for
	err   error
	after []*func() // to be called at the end
}

var _ interface {
	context.Context
	AfterFunc(func()) func() bool
} = (*requestContext)(nil)

func (c *requestContext) Deadline() (time.Time, bool) { return c.base.Deadline() }

func (c *requestContext) Value(key any) any {
	if key == http.LocalAddrContextKey {
		return c.local
	}
	return c.base.Value(key)
}

func (c *requestContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		}
	}
	return c.done
}

func (c *requestContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// AfterFunc has f called once the context has ended, on the goroutine that ends
// it: f must not block. Package context, for which it is made, hands over only
// what ends a child.
func (c *requestContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	ended := c.err != nil
	if !ended {
		c.after = append(c.after, &f)
	}
	c.mu.Unlock()
	if ended {
		f()
		return func() bool { return false }
	}
	return func() bool { return c.forget(&f) }
}

func (c *requestContext) forget(f *func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.after, f)
	if i < 0 {
		return false
	}
	c.after = slices.Delete(c.after, i, i+1)
	return true
}

// cancel ends the context; only the first call counts.
func (c *requestContext) cancel() {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = context.Canceled
	if err := c.base.Err(); err != nil {
		c.err = err
	}
	if c.done != nil {
		close(c.done)
	}
	after := c.after
	c.after = nil
	c.mu.Unlock()
	for _, f := range after {
		(*f)()
	}
}
