// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Pauses between two tries to reach a driver, doubling (NI-34).
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// errAbsent says that a way to the driver does not exist on this machine, which
// is no fault.
var errAbsent = errors.New("not on this machine")

// nvidia asks NVIDIA's driver, by the first of several ways that works, and tries
// them all again, ever less often, while none does.
type nvidia struct {
	log     *slog.Logger
	drivers []driver

	active  driver // nil while none works
	known   []Adapter
	failing bool          // has been told
	retryAt time.Time     // not before that
	pause   time.Duration // before the next try; 0 is none so far
}

func newNVIDIA(log *slog.Logger, drivers ...driver) *nvidia {
	return &nvidia{log: log, drivers: drivers}
}

// adapters returns the adapters. While the driver does not answer they are those
// that it told of last.
func (n *nvidia) adapters(ctx context.Context) []Adapter {
	if n.active == nil && time.Now().Before(n.retryAt) {
		return n.known
	}
	tries := n.drivers
	if n.active != nil {
		tries = []driver{n.active}
	}
	var failed error
	for _, d := range tries {
		list, err := d.adapters(ctx)
		if err == nil {
			n.works(d, list)
			return n.known
		}
		if !errors.Is(err, errAbsent) {
			failed = errors.Join(failed, err)
		}
	}
	n.fails(failed)
	return n.known
}

// readings returns the figures of the adapters, and whether they should be
// listed again: their driver has come or gone.
func (n *nvidia) readings(ctx context.Context) (readings map[string]Reading, changed bool) {
	if n.active == nil {
		if time.Now().Before(n.retryAt) {
			return nil, false
		}
		if n.adapters(ctx); n.active == nil {
			return nil, false
		}
		changed = true
	}
	readings, err := n.active.readings(ctx)
	if err != nil {
		n.fails(err)
		return nil, true
	}
	return readings, changed
}

func (n *nvidia) works(d driver, list []Adapter) {
	if n.failing {
		n.log.Info("graphics driver answers again", "adapters", len(list))
	}
	n.active, n.known, n.failing, n.pause = d, list, false, 0
}

// fails ends an attempt; a nil err is a machine without the driver. One outage
// is one warning.
func (n *nvidia) fails(err error) {
	n.active = nil
	n.pause = min(max(2*n.pause, firstRetry), lastRetry)
	n.retryAt = time.Now().Add(n.pause)
	if err != nil && !n.failing {
		n.log.Warn("graphics driver does not answer", "err", err)
		n.failing = true
	}
}
