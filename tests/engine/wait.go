// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"io"
	"time"
)

// Why an exchange ends before its answer is whole.
var (
	errLeft    = errors.New("client left")
	errCut     = errors.New("cut by a fault")
	errClosing = errors.New("engine ends")
	errEvicted = errors.New("model evicted")
)

// sleep waits, unless the exchange is over already. It ends early, with x.err
// set, when the client leaves or the engine ends. A negative d waits for that.
func (x *exchange) sleep(d time.Duration) {
	if d != 0 {
		x.await(nil, d)
	}
}

// await waits for ch, at most d if d is positive. It reports whether ch was
// ready; otherwise the time is over or x.err is set.
func (x *exchange) await(ch <-chan struct{}, d time.Duration) bool {
	if x.err != nil {
		return false
	}
	c := x.c
	c.watch()
	var expired <-chan time.Time
	if d > 0 {
		if c.timer == nil {
			c.timer = time.NewTimer(d)
		} else {
			c.timer.Reset(d)
		}
		defer c.timer.Stop()
		expired = c.timer.C
	}
	select {
	case <-ch:
		return true
	case <-expired:
	case <-x.evicted:
		x.err = errEvicted
	case <-c.gone:
		x.left(c.goneWith)
	case <-x.e.closing:
		x.err = errClosing
	}
	return false
}

// left notes that the client left, as seen by a read or a write.
func (x *exchange) left(how error) {
	if x.err != nil {
		return
	}
	select {
	case <-x.e.closing: // we closed the connection ourselves
		x.err = errClosing
		return
	default:
	}
	x.err = errLeft
	word := "reset"
	if errors.Is(how, io.EOF) || errors.Is(how, io.ErrUnexpectedEOF) {
		word = "closed"
	}
	x.rec.leave(x.e.witness, word)
	if f := x.plan.find(KindHalfClose); f != nil && word == "closed" {
		x.deaf()
	}
}

// deaf holds the connection of a client that closed its half: no answer and no
// end, as Ollama does, until the engine ends or the fault's time is over.
func (x *exchange) deaf() {
	d := x.plan.find(KindHalfClose).duration()
	if d <= 0 {
		d = time.Minute
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-x.e.closing:
	}
}
