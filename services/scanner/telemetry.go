// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"context"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	"nvpair/shared/discovery"
)

const (
	telemetryEvery  = 2 * time.Second
	telemetryAtOnce = 16
	// blindEvery is how often a node is asked that has no reading, as one without a
	// graphics card: that says nothing about its load, and most machines at rest
	// would ask each other for it day and night.
	blindEvery = 10 * time.Second
	// slowFactor times what an answer took passes until the next question, so that
	// slow nodes leave room for others.
	slowFactor = 8
	maxSlow    = 30 * time.Second
)

// telemetryPeriod spreads nodes in time, each by its own fixed offset of up to a
// quarter second (DI-93).
func telemetryPeriod(self string) time.Duration {
	if self == "" {
		return telemetryEvery
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(self)) // never fails
	return telemetryEvery + time.Duration(int64(h.Sum32()%501)-250)*time.Millisecond
}

// telemetry samples the load of all nodes, this one included. A node that does not
// answer is asked less and less often (DI-95).
type telemetry struct {
	s     *service
	slots chan struct{} // capacity telemetryAtOnce

	mu    sync.Mutex // guards polls
	polls map[string]*poll
}

// poll is the state of one node at one endpoint.
type poll struct {
	ips    []string
	port   int
	busy   bool
	failed int
	due    time.Time
	blind  bool // the broker was told that there is no reading
}

func newTelemetry(s *service) *telemetry {
	return &telemetry{s: s, slots: make(chan struct{}, telemetryAtOnce), polls: make(map[string]*poll)}
}

// backoff after n failures in a row.
func backoff(n int) time.Duration {
	return []time.Duration{4, 8, 16, 30}[min(n, 4)-1] * time.Second
}

func (t *telemetry) run(ctx context.Context) {
	ticks := time.NewTicker(telemetryPeriod(t.s.self.id()))
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			t.s.refreshTrust() // SEC-T13: no turn of its own, so that it wakes nobody
			t.tick(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// tick starts a question to everyone that is due; none waits for another.
func (t *telemetry) tick(ctx context.Context) {
	nodes := append(t.s.directory.nodes(), t.s.self.local())
	for _, n := range nodes {
		if n.Services[discovery.ServiceNodeInfo].Port == 0 || len(n.IPs) == 0 {
			continue
		}
		if p := t.take(n); p != nil {
			t.s.running.Go(func() { t.sample(ctx, n, p) })
		}
	}
}

// take claims a node's turn, nil if it is not due.
func (t *telemetry) take(n discovery.DirectoryNode) *poll {
	port := n.Services[discovery.ServiceNodeInfo].Port
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.polls[n.HostUUID]
	switch {
	case p != nil && p.busy:
		return nil
	case p == nil || p.port != port || !slices.Equal(p.ips, n.IPs):
		p = &poll{ips: n.IPs, port: port} // another endpoint owes nothing for the old one
		t.polls[n.HostUUID] = p
	case time.Now().Before(p.due):
		return nil
	}
	p.busy = true
	return p
}

func (t *telemetry) sample(ctx context.Context, n discovery.DirectoryNode, p *poll) {
	if n.HostUUID != t.s.self.id() { // which waits for nobody
		select {
		case t.slots <- struct{}{}:
			defer func() { <-t.slots }()
		case <-ctx.Done():
			return
		}
	}
	began := time.Now()
	got, err := t.s.infos.of(ctx, n)
	good := err == nil && got.hostUUID == n.HostUUID // here an answer must say who it is (DI-94)
	if here := t.done(n.HostUUID, p, good, time.Since(began)); !good || !here {
		return
	}
	sample := discovery.Telemetry{HostUUID: n.HostUUID, GPUUse: got.use, Valid: got.valid}
	if got.valid {
		sample.AgeMillis = got.millis + time.Since(began).Milliseconds()
	}
	if t.news(p, got.valid) {
		t.s.emit(discovery.NotifyNodeTelemetry, sample)
	}
	if n.HostUUID == t.s.self.id() {
		t.s.self.learn(got.described())
	}
}

// news reports whether a sample says anything: that a node has no reading is said
// once, and it is asked again later. On a machine without one, nothing then wakes the
// broker every two seconds.
func (t *telemetry) news(p *poll, valid bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	repeated := p.blind && !valid
	p.blind = !valid
	if p.blind {
		p.due = time.Now().Add(blindEvery - telemetryEvery/2) // the tick nearest to it
	}
	return !repeated
}

// done ends a question. It reports whether the node is still here: the load of one
// that left meanwhile is no news.
func (t *telemetry) done(uuid string, p *poll, good bool, took time.Duration) (here bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.busy = false
	switch {
	case good:
		p.failed, p.due = 0, time.Now().Add(min(slowFactor*took, maxSlow)-telemetryEvery)
	case uuid != t.s.self.id():
		p.failed++
		p.due = time.Now().Add(backoff(p.failed))
	}
	return t.polls[uuid] == p
}

// prune forgets whoever is gone.
func (t *telemetry) prune(gone func(uuid string) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.polls, func(uuid string, p *poll) bool { return gone(uuid) && !p.busy })
}

func (t *telemetry) forget(uuid string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.polls, uuid)
}
