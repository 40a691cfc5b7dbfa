// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"net"
	"time"
)

// Listening is how the engine treats new connections.
type Listening string

// The states of the listener.
const (
	Open   Listening = "open"
	Paused Listening = "paused" // bound, but connections wait in the kernel's queue
	Closed Listening = "closed" // refused; the address is free for others
)

// Listen changes how new connections are treated; those that exist go on. From
// Closed back to Open it listens on its address again, which may be taken by now.
func (e *Engine) Listen(state Listening) error {
	switch state {
	case Open:
		return e.reopen()
	case Paused:
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.paused == nil {
			e.paused = make(chan struct{})
			// The accept loop waits in Accept; a deadline in the past wakes it.
			if d, ok := e.open.(interface{ SetDeadline(time.Time) error }); ok {
				return d.SetDeadline(past)
			}
		}
		return nil
	case Closed:
		e.mu.Lock()
		ln := e.open
		e.open = nil
		e.mu.Unlock()
		if ln != nil {
			return ln.Close()
		}
		return nil
	}
	return fmt.Errorf("unknown state of a listener %q", state)
}

func (e *Engine) reopen() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return net.ErrClosed
	}
	if e.open == nil {
		ln, err := net.Listen(e.addr.Network(), e.addr.String())
		if err != nil {
			return fmt.Errorf("listen again: %w", err)
		}
		e.open = ln
		e.wg.Go(func() { e.accept(ln) })
	}
	if e.paused != nil {
		if d, ok := e.open.(interface{ SetDeadline(time.Time) error }); ok {
			if err := d.SetDeadline(time.Time{}); err != nil {
				return err
			}
		}
		close(e.paused)
		e.paused = nil
	}
	return nil
}
