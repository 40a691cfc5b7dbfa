// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"time"
)

// setUp brings the engine into the state the command line wants it to begin in.
func (o *options) setUp(e *Engine) error {
	if o.faults != "" {
		faults, err := parseFaults([]byte(o.faults))
		if err == nil {
			err = e.Faults.Set(faults...)
		}
		if err != nil {
			return fmt.Errorf("--faults: %w", err)
		}
	}
	begin := func(d time.Duration, on func() error, off func()) error {
		if d <= 0 {
			return nil
		}
		time.AfterFunc(d, off) // of no effect on an engine that has ended
		return on()
	}
	open := func() { _ = e.Listen(Open) } // an address that was taken meanwhile stays refused
	if err := begin(o.refuse, func() error { return e.Listen(Closed) }, open); err != nil {
		return err
	}
	if err := begin(o.pause, func() error { return e.Listen(Paused) }, open); err != nil {
		return err
	}
	return begin(o.loading, func() error { e.SetLoading(true); return nil }, func() { e.SetLoading(false) })
}

// await waits for the end of the engine: asked is SIGTERM, as --stop has it.
func (o *options) await(e *Engine, asked, inputEnds context.Context, fails <-chan time.Time) error {
	term := asked.Done()
	if o.stop == "never" {
		term = nil
	}
	select {
	case <-inputEnds.Done():
		return nil
	case <-fails:
		return errAsked
	case <-term:
	}
	if o.stop == "now" {
		return nil
	}
	// Deaf until the clients have left: no new connection, no word.
	if err := e.Listen(Closed); err != nil {
		return err
	}
	_, err := e.AwaitWitness(inputEnds, func(r Report) bool { return r.Open == 0 })
	if inputEnds.Err() != nil {
		return nil
	}
	return err
}
