// SPDX-License-Identifier: Apache-2.0

package nodeinfo

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"nvpair/services/nodeinfo/hardware"
)

const (
	// sampleEvery is the period of the samples while somebody asks again and again
	// (NI-30), and idleEvery else. A sample of that age still counts with those who
	// read it: they take up to 10 s. Clients and other nodes that follow the load ask
	// every 2 s, which askedFor must cover.
	sampleEvery = time.Second
	idleEvery   = 5 * time.Second
	askedFor    = 3 * time.Second

	// Periods of the search for adapters: while none is known, and else (NI-34).
	searchEvery = 10 * time.Second
	detectEvery = time.Minute
)

// collector reads the hardware on one goroutine and publishes what it read.
type collector struct {
	machine  Machine
	view     atomic.Pointer[view] // written by the collector alone
	askedAt  atomic.Int64         // of the last request, in ns since began; written by requests
	followed atomic.Int64         // of the last one that came within askedFor of another
	began    time.Time
	wake     chan struct{} // capacity 1: one pending mark stands for any number of requests
	resting  atomic.Bool   // samples come every idleEvery; written by the collector alone
	detectAt time.Time     // when to look for adapters again
	sampled  time.Time     // when the newest sample was taken
	state    inventory
}

func newCollector(m Machine) *collector {
	c := &collector{machine: m, began: time.Now(), wake: make(chan struct{}, 1), state: inventory{host: m.Host()}}
	c.view.Store(&view{})
	return c
}

// prepare looks for adapters and takes the first sample.
func (c *collector) prepare(ctx context.Context) {
	c.detect(ctx)
	c.sample(ctx)
}

// newest returns what was published last. It must not be changed.
func (c *collector) newest() *view { return c.view.Load() }

// asked notes a request. The second in a short time ends a rest.
func (c *collector) asked() {
	now := time.Since(c.began)
	before := time.Duration(c.askedAt.Swap(int64(now)))
	if before == 0 || now-before > askedFor {
		return
	}
	c.followed.Store(int64(now))
	if c.resting.Load() {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

// run samples until ctx ends.
func (c *collector) run(ctx context.Context) {
	timer := time.NewTimer(sampleEvery)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-c.wake:
			timer.Reset(max(0, sampleEvery-time.Since(c.sampled)))
			continue
		case <-ctx.Done():
			return
		}
		if !time.Now().Before(c.detectAt) {
			c.detect(ctx)
		}
		if c.sample(ctx) {
			c.detect(ctx)
		}
		timer.Reset(c.period())
	}
}

func (c *collector) period() time.Duration {
	followed := time.Duration(c.followed.Load())
	resting := followed == 0 || time.Since(c.began)-followed > askedFor
	c.resting.Store(resting)
	if resting {
		return idleEvery
	}
	return sampleEvery
}

// detect looks for adapters.
func (c *collector) detect(ctx context.Context) {
	c.state.detected(c.machine.Adapters(ctx))
	c.detectAt = time.Now().Add(detectEvery)
	if len(c.state.adapters) == 0 {
		c.detectAt = time.Now().Add(searchEvery)
	}
}

// sample takes and publishes one, and reports whether adapters came or went.
func (c *collector) sample(ctx context.Context) (changed bool) {
	load := c.machine.Load(ctx)
	c.sampled = time.Now()
	c.state.sampled(load, c.sampled)
	c.view.Store(c.state.view())
	return load.Changed
}

// inventory is what is known of the machine, out of which a view is made.
type inventory struct {
	host     hardware.Host
	adapters []hardware.Adapter // in the order in which they were first seen
	load     hardware.Load      // the newest
	// gpus are the newest usable readings, with their time, or readings without
	// a time while there was no usable pass yet (NI-13).
	gpus   map[string]hardware.Reading
	gpusAt time.Time
}

// detected replaces the adapters. Those that stay keep their places (NI-9).
func (i *inventory) detected(found []hardware.Adapter) {
	var list []hardware.Adapter
	for _, old := range i.adapters {
		if at := indexOf(found, old); at >= 0 {
			list = append(list, found[at])
			found = slices.Delete(slices.Clone(found), at, at+1)
		}
	}
	i.adapters = append(list, found...)
}

// indexOf finds an adapter by its key, or by its name where it has none.
func indexOf(list []hardware.Adapter, a hardware.Adapter) int {
	return slices.IndexFunc(list, func(b hardware.Adapter) bool {
		return a.Key == b.Key && (a.Key != "" || a.Name == b.Name)
	})
}

// sampled takes a sample in.
func (i *inventory) sampled(load hardware.Load, at time.Time) {
	i.load = load
	i.adapters = fold(i.adapters, load.Found)
	usable := false
	for _, r := range load.GPUs {
		usable = usable || r.UseKnown
	}
	switch {
	case usable:
		i.gpus, i.gpusAt = load.GPUs, at
	case i.gpusAt.IsZero():
		i.gpus = load.GPUs
	}
}

// fold adds adapters that were enumerated later: the same key fills what is
// missing, a new one is appended, one without a key is skipped (NI-12).
func fold(adapters, found []hardware.Adapter) []hardware.Adapter {
	if len(found) == 0 {
		return adapters
	}
	adapters = slices.Clone(adapters)
	for _, f := range found {
		if f.Key == "" {
			continue
		}
		at := indexOf(adapters, f)
		if at < 0 {
			adapters = append(adapters, f)
			continue
		}
		a := &adapters[at]
		if a.Name == "" {
			a.Name = f.Name
		}
		if a.Total == 0 {
			a.Total = f.Total
		}
	}
	return adapters
}
