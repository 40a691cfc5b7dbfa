// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// answerWithin is added to the time that a cell takes: what takes longer has failed.
const answerWithin = 30 * time.Second

// Cell is one measurement: so many clients, each with one connection, that send requests of one kind to one address.
type Cell struct {
	Addr      string        `json:"addr"`
	Kind      string        `json:"kind"`
	BodyBytes int           `json:"bodyBytes"` // of a request
	Clients   int           `json:"clients"`
	Warm      int           `json:"warm"`    // requests of each client before the measurement
	For       time.Duration `json:"for"`     // nanoseconds; no request begins later
	Limit     int           `json:"limit"`   // measured requests of each client; 0 is none
	Seconds   int           `json:"seconds"` // a slow stream's; each client has one stream then
}

// Result is what a cell found.
type Result struct {
	Open     int           `json:"open,omitempty"` // alone: so many slow streams are open now
	Requests int           `json:"requests"`       // measured and right
	Sent     int           `json:"sent"`           // those before the measurement too
	Failures int           `json:"failures"`       // a client ends with its first
	Failure  string        `json:"failure"`        // the first of them
	Elapsed  time.Duration `json:"elapsed"`        // nanoseconds to the last answer
	Whole    Quantiles     `json:"whole"`          // until the end of an answer
	First    Quantiles     `json:"first"`          // until the first byte of its body
}

// Rate returns right answers a second.
func (r *Result) Rate() float64 { return float64(r.Requests) / r.Elapsed.Seconds() }

// Quantiles are samples, in nanoseconds.
type Quantiles struct {
	P50 time.Duration `json:"p50"`
	P95 time.Duration `json:"p95"`
	P99 time.Duration `json:"p99"`
	Max time.Duration `json:"max"`
}

func quantiles(s []time.Duration) Quantiles {
	if len(s) == 0 {
		return Quantiles{}
	}
	slices.Sort(s)
	at := func(q float64) time.Duration { return s[min(int(q*float64(len(s))), len(s)-1)] }
	return Quantiles{at(0.5), at(0.95), at(0.99), s[len(s)-1]}
}

// part is what one client did.
type part struct {
	first, whole []time.Duration
	sent         int
	ended        time.Time
	err          error
}

// Run takes the measurement. It calls opened once all slow streams have begun or failed. What fails is part of the
// result.
func (c *Cell) Run(opened func(int)) Result {
	clients, err := c.dial()
	defer func() {
		for _, k := range clients {
			_ = k.conn.Close()
		}
	}()
	if err != nil {
		return Result{Failures: 1, Failure: err.Error()}
	}
	parts := make([]part, len(clients))
	if c.Kind == KindSlow {
		began := time.Now()
		c.watch(clients, parts, opened)
		return summary(parts, began)
	}
	together(len(clients), func(i int) { parts[i].warm(clients[i], c.Warm) })
	runtime.GC() // what was made before is not this cell's
	began := time.Now()
	together(len(clients), func(i int) { parts[i].measure(clients[i], c, began) })
	return summary(parts, began)
}

func (c *Cell) dial() ([]*client, error) {
	want := map[string]string{
		KindJSON: answer, KindStream: events(Chunks), KindPause: events(Chunks), KindSlow: events(c.Seconds),
	}[c.Kind]
	if want == "" || c.Clients < 1 {
		return nil, fmt.Errorf("cell of %d clients, kind %q", c.Clients, c.Kind)
	}
	request := requestTo(c)
	deadline := time.Now().Add(c.For + time.Duration(c.Seconds)*time.Second + answerWithin)
	var clients []*client
	for range c.Clients {
		k, err := dial(c, request, []byte(want))
		if err != nil {
			return clients, err
		}
		_ = k.conn.SetDeadline(deadline) // a connection just made takes it
		clients = append(clients, k)
	}
	return clients, nil
}

// together calls f for 0 to n-1 at once and waits.
func together(n int, f func(int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

func (p *part) warm(k *client, n int) {
	for range n {
		if _, _, p.err = k.ask(); p.err != nil {
			return
		}
		p.sent++
	}
}

func (p *part) measure(k *client, c *Cell, began time.Time) {
	room := 4096
	if c.Limit > 0 {
		room = c.Limit
	}
	p.first, p.whole = make([]time.Duration, 0, room), make([]time.Duration, 0, room)
	for p.err == nil && (c.Limit == 0 || len(p.whole) < c.Limit) && time.Since(began) < c.For {
		var first, whole time.Duration
		if first, whole, p.err = k.ask(); p.err == nil {
			p.sent++
			p.first, p.whole = append(p.first, first), append(p.whole, whole)
		}
	}
	p.ended = time.Now()
}

// watch opens one slow stream a client, over one second, and reads them to their ends.
func (c *Cell) watch(clients []*client, parts []part, opened func(int)) {
	var begun, open atomic.Int64
	count := func() {
		if begun.Add(1) == int64(len(clients)) {
			opened(int(open.Load()))
		}
	}
	once := Cell{For: time.Hour, Limit: 1}
	together(len(clients), func(i int) {
		first := sync.OnceFunc(count)
		clients[i].first = func() { open.Add(1); first() }
		wait := time.NewTimer(time.Second * time.Duration(i) / time.Duration(len(clients)))
		<-wait.C
		parts[i].measure(clients[i], &once, time.Now())
		first() // of a stream that failed before it
	})
}

func summary(parts []part, began time.Time) Result {
	var r Result
	var first, whole []time.Duration
	end := began
	for _, p := range parts {
		first, whole = append(first, p.first...), append(whole, p.whole...)
		r.Sent += p.sent
		if p.ended.After(end) {
			end = p.ended
		}
		if p.err != nil {
			r.Failures++
			if r.Failure == "" {
				r.Failure = p.err.Error()
			}
		}
	}
	r.Requests, r.Elapsed = len(whole), end.Sub(began)
	r.First, r.Whole = quantiles(first), quantiles(whole)
	if r.Requests == 0 && r.Failures == 0 {
		r.Failures, r.Failure = 1, "no request was made"
	}
	return r
}
