// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"nvpair/internal/jsonrpc"
	"nvpair/services/broker/feed"
	"nvpair/services/broker/jobs"
	"nvpair/shared/discovery"
	"nvpair/shared/facade"
	"nvpair/shared/schedule"
	"nvpair/shared/workload"
)

// schedulerLink is what one incarnation of the scheduler is fed (BR-64). The node
// list is a snapshot: it is not sent while events wait, for it is to come behind
// the load that it goes with.
type schedulerLink struct {
	link  *workerLink
	out   *feed.Outbox
	nodes *jsonrpc.Stream
}

func newSchedulerLink(l *workerLink) *schedulerLink {
	s := &schedulerLink{link: l}
	s.out = feed.NewOutbox(l.conn, l.log(), func() { s.nodes.Mark() })
	s.nodes = l.conn.NewStream(discovery.NotifyNodesChanged, func() (json.RawMessage, bool) {
		if !s.out.Idle() {
			return nil, false // it is marked again when they are through
		}
		return encode(l.b.nodes.available()), true
	})
	return s
}

func (s *schedulerLink) upsert(c jobs.Change, params json.RawMessage) {
	s.out.Send(feed.Item{Method: workload.MethodUpsert, Params: params, Key: c.Key})
}

// telemetryKey keeps the newest observation of a host while it waits.
type telemetryKey string

func (s *schedulerLink) observe(t discovery.Telemetry) {
	s.out.Send(feed.Item{Method: schedule.NotifyTelemetry, Params: encode(t), Key: telemetryKey(t.HostUUID)})
}

// schedulerSpawned tells a new scheduler of all load, then of all nodes, before
// any live event (BR-65).
func schedulerSpawned(_ context.Context, b *Broker, l *workerLink) {
	w := b.workloads
	w.mu.Lock()
	defer w.mu.Unlock()
	s := newSchedulerLink(l)
	for _, c := range w.index.Open() {
		s.upsert(c, upsertParams(c.Info))
	}
	for _, t := range b.telemetry.All() {
		s.observe(t)
	}
	s.nodes.Mark()
	w.scheduler = s
}

// schedulerDrained forgets a scheduler that is gone.
func schedulerDrained(b *Broker, l *workerLink) {
	w := b.workloads
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.scheduler != nil && w.scheduler.link == l {
		w.scheduler.out.Close()
		w.scheduler = nil
	}
}

// nodesChanged tells the scheduler of the directory.
func (w *workloadFlow) nodesChanged() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.scheduler != nil {
		w.scheduler.nodes.Mark()
	}
}

// observed takes the load of a node from the scanner.
func (b *Broker) observed(l *workerLink, req *jsonrpc.Request) {
	var t discovery.Telemetry
	if err := json.Unmarshal(req.Params, &t); err != nil {
		l.undecodable(req, err)
		return
	}
	if t.HostUUID == "" {
		b.cfg.Log.Warn("telemetry without a host uuid ignored", "worker", l.worker.name)
		return
	}
	b.tellTelemetry(func() (discovery.Telemetry, bool) { return b.telemetry.Observe(feed.ScannerTelemetry, t) })
}

// tellTelemetry changes the cache and tells the scheduler in one step, so that no
// seed comes in between.
func (b *Broker) tellTelemetry(change func() (discovery.Telemetry, bool)) {
	w := b.workloads
	w.mu.Lock()
	defer w.mu.Unlock()
	if t, ok := change(); ok && w.scheduler != nil {
		w.scheduler.observe(t)
	}
}

// nodeUnheard follows the scanner's claim on a node out of the directory (DI-125).
func (b *Broker) nodeUnheard(n discovery.DirectoryNode) {
	b.tellTelemetry(func() (discovery.Telemetry, bool) { return b.telemetry.Forget(feed.ScannerTelemetry, n.HostUUID) })
}

// fromScheduler handles the scheduler's notifications.
func (b *Broker) fromScheduler(l *workerLink, req *jsonrpc.Request) bool {
	if req.Method != schedule.NotifyPriority {
		return false
	}
	var p schedule.Priority
	if err := json.Unmarshal(req.Params, &p); err != nil {
		l.undecodable(req, err)
		return true
	}
	b.priorities.offer(p.Ranking)
	return true
}

// priorityDeadline is for one call with a ranking.
const priorityDeadline = 5 * time.Second

// priorities tells the proxy the newest ranking: one call at a time, and what was
// superseded before its turn is skipped (BR-67).
type priorities struct {
	b       *Broker
	ranking feed.Ranking

	mu   sync.Mutex  // guards the rest; not held over Conn.Start, which may call back
	link *workerLink // of the latest call
	busy bool        // it has not ended
	told int64       // its generation
}

func (p *priorities) offer(r schedule.Ranking) {
	if !p.ranking.Offer(r) {
		return
	}
	l := p.b.byName[workerProxy].current()
	if l == nil {
		p.b.cfg.Log.Debug("no proxy, ranking kept for the next")
		return
	}
	p.push(l)
}

// push sends the newest ranking unless this process has it or is being told one.
// There may be none yet.
func (p *priorities) push(l *workerLink) {
	p.mu.Lock()
	newest, generation := p.ranking.Newest()
	skip := generation == 0 || p.link == l && (p.busy || p.told == generation)
	if !skip {
		p.link, p.busy, p.told = l, true, generation
	}
	p.mu.Unlock()
	if skip {
		return
	}
	params := encode(schedule.SetPriority{Generation: generation, Ranking: newest})
	l.conn.Start(facade.MethodSetPriority, params, priorityDeadline, func(r jsonrpc.Response) { p.done(l, r) })
}

// done ends a call. One that failed is repeated at the next push: soon, but not at
// once.
func (p *priorities) done(l *workerLink, r jsonrpc.Response) {
	_, err := r.Decode()
	if err != nil {
		p.b.cfg.Log.Warn("ranking not passed on", "worker", l.worker.name, "err", err)
	}
	p.mu.Lock()
	current := p.link == l
	if current {
		p.busy = false
	}
	if current && err != nil {
		p.told = 0
	}
	p.mu.Unlock()
	if current && err == nil {
		p.push(l) // what came meanwhile
	}
}

// proxyDrained ends what the process left open.
func proxyDrained(b *Broker, l *workerLink) { b.workloads.endOf(l) }
