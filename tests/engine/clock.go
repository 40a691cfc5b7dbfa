// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync/atomic"
	"time"
)

// epoch is the time in every body, unless the clock is asked for.
var epoch = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// now returns the time that bodies show.
func (e *Engine) now() time.Time {
	if e.cfg.Clock {
		return time.Now().UTC()
	}
	return epoch
}

// appendTime appends a time as Go's JSON has it.
func appendTime(b []byte, t time.Time) []byte { return t.AppendFormat(b, time.RFC3339Nano) }

// dateLine is the value of the Date header during one second.
type dateLine struct {
	second int64
	text   string
}

// dates keeps the last value; each second makes one anew.
type dates struct{ last atomic.Pointer[dateLine] }

func (d *dates) text() string {
	now := time.Now()
	line := d.last.Load()
	if line == nil || line.second != now.Unix() {
		line = &dateLine{now.Unix(), now.UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT")}
		d.last.Store(line)
	}
	return line.text
}
