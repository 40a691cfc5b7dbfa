// SPDX-License-Identifier: Apache-2.0

package httpserve

import "time"

// send writes to the client. The first error is kept and ends the request's
// context.
func (c *conn) send(b []byte) error {
	if c.writeErr != nil {
		return c.writeErr
	}
	if c.writeStale.Load() {
		c.clearWriteDeadline()
	}
	if _, err := c.nc.Write(b); err != nil {
		c.writeErr = err
		_ = c.nc.Close()
		c.left()
	}
	return c.writeErr
}

func (c *conn) clearWriteDeadline() {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	if c.writeStale.Load() { // the handler has not set one meanwhile
		c.writeStale.Store(false)
		c.hasWriteLine.Store(false)
		_ = c.nc.SetWriteDeadline(time.Time{})
	}
}

func (c *conn) setWriteDeadline(t time.Time) error {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.writeStale.Store(false)
	c.hasWriteLine.Store(!t.IsZero())
	return c.nc.SetWriteDeadline(t)
}
