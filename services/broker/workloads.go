// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"encoding/json"
	"path/filepath"
	"sync"
	"time"

	"nvpair/internal/jsonrpc"
	"nvpair/services/broker/feed"
	"nvpair/services/broker/jobs"
	"nvpair/shared/discovery"
	"nvpair/shared/nodesettings"
	"nvpair/shared/workload"
)

const (
	historyFile = "workloads-history.json"
	// lastFlush bounds the wait for the last write of the history (CT-28).
	lastFlush = 5 * time.Second
	// maxListBytes bounds the answer to workloads:get-initial: with its envelope
	// it fits a frame of 4 MiB, the least that a client must take (WR-20).
	maxListBytes = 4*mib - 1<<10
	// refusedEvery limits the warnings about jobs beyond the bounds.
	refusedEvery = time.Minute
)

// workloadFlow is the way of an event about a job: into the index, to the
// scheduler, to the client, and if it is this node's own to the workload manager
// (BR section 9).
type workloadFlow struct {
	b       *Broker
	index   *jobs.Index
	history *jobs.History

	// mu makes applying a change and telling everybody one step, so that all see
	// all changes in one order (BR-50), and a worker that joins sees a replay and
	// then what comes after it. It is held over sends, which only queue, and
	// comes before every other lock.
	mu        sync.Mutex
	scheduler *schedulerLink // nil until it is seeded
	manager   *feed.Outbox   // of managerOf; nil until it had its replay
	managerOf *workerLink
	refused   time.Time // of the latest warning
}

func newWorkloadFlow(b *Broker) *workloadFlow {
	w := &workloadFlow{b: b, index: jobs.New(jobs.Config{NodeID: b.cfg.NodeID})}
	w.history = jobs.NewHistory(w.index, filepath.Join(b.cfg.DataDir, historyFile), b.cfg.Log)
	return w
}

// start loads the history and runs what has to be done about jobs in time. stop
// ends that with a last write, for which it waits 5 s at most.
func (w *workloadFlow) start() (stop func()) {
	w.history.Load()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { w.history.Run(ctx) })
	wg.Go(func() { w.index.WatchSilence(ctx, w.guessSilent) })
	return func() {
		cancel()
		ended := make(chan struct{})
		go func() { defer close(ended); wg.Wait() }()
		timer := time.NewTimer(lastFlush)
		defer timer.Stop()
		select {
		case <-ended:
		case <-timer.C: // a disk that hangs ends with the process
			w.b.cfg.Log.Warn("job history not written in time", "elapsed", lastFlush)
		}
	}
}

// emitLocked tells scheduler and client of an accepted change.
func (w *workloadFlow) emitLocked(c jobs.Change) {
	params := upsertParams(c.Info)
	if w.scheduler != nil {
		w.scheduler.upsert(c, params)
	}
	if w.b.client.workloads.Load() {
		w.b.client.notifySoon(workload.MethodUpsert, params)
	}
}

// upsertParams is the encoding of a workload.Event without looking into the
// object, which is whole already.
func upsertParams(info json.RawMessage) json.RawMessage {
	b := make([]byte, 0, len(info)+len(`{"workloadInfo":}`))
	b = append(b, `{"workloadInfo":`...)
	return append(append(b, info...), '}')
}

// fromProxyJobs takes what the proxy says of this node's jobs. It goes to the workload
// manager too, also when the index rejected it: peers judge for themselves (BR-48).
func (b *Broker) fromProxyJobs(l *workerLink, req *jsonrpc.Request) bool {
	switch req.Method {
	case workload.MethodSubmitted, workload.MethodStarted, workload.MethodCompleted, workload.MethodErrored:
	case workload.MethodRemove:
		b.workloads.remove(l, req, b.cfg.NodeID)
		return true
	default:
		return false
	}
	params, info, err := jobs.StampEvent(req.Params, b.cfg.NodeID)
	if err != nil {
		l.undecodable(req, err)
		return true
	}
	e, err := jobs.NewEvent(info, jobs.FromProxy(l.process.Generation))
	if err != nil {
		l.undecodable(req, err)
		return true
	}
	w := b.workloads
	w.mu.Lock()
	defer w.mu.Unlock()
	accepted := w.applyLocked(e)
	w.forwardLocked(feed.Item{Method: req.Method, Params: params, Key: e.Change().Key, Weak: !accepted})
	return true
}

// fromWorkloads takes what the workload manager passes up: jobs of peers and of
// this node's ingress. None of it goes back (CT-2).
func (b *Broker) fromWorkloads(l *workerLink, req *jsonrpc.Request) bool {
	switch req.Method {
	case workload.MethodUpsert:
		e, err := jobs.NewEvent(jobs.InfoOf(req.Params), jobs.FromManager)
		if err != nil {
			l.undecodable(req, err)
			return true
		}
		w := b.workloads
		w.mu.Lock()
		defer w.mu.Unlock()
		w.applyLocked(e)
	case workload.MethodRemove:
		b.workloads.remove(l, req, "")
	default:
		return false
	}
	return true
}

// applyLocked merges an event, tells of it if it counts, and reports whether it
// does.
func (w *workloadFlow) applyLocked(e jobs.Event) (accepted bool) {
	switch w.index.Put(e) {
	case jobs.Accepted:
		w.emitLocked(e.Change())
		return true
	case jobs.Full:
		if w.refused.IsZero() || time.Since(w.refused) >= refusedEvery {
			w.refused = time.Now()
			w.b.cfg.Log.Warn("too many open jobs, further ones are not shown before they end", "node", e.Change().Key.OriginatedFrom)
		}
	}
	return false
}

// remove deletes the jobs a removal names and passes it on, also if there were
// none (BR-50). own is this node for the proxy's removals, which go to peers too,
// else "".
func (w *workloadFlow) remove(l *workerLink, req *jsonrpc.Request, own string) {
	stamped, r, err := jobs.ReadRemoval(req.Params, own)
	if err != nil {
		l.undecodable(req, err)
		return
	}
	pair := workload.Pair{OriginatedFrom: r.OriginatedFrom, ID: r.ID}
	item := feed.Item{Method: req.Method, Params: encode(r), Key: pair, Covers: func(key any) bool {
		k, ok := key.(workload.Key)
		return ok && k.Pair() == pair
	}}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.index.Remove(pair)
	if w.scheduler != nil {
		w.scheduler.out.Send(item)
	}
	if w.b.client.workloads.Load() {
		w.b.client.notify(item.Method, item.Params)
	}
	if own != "" {
		item.Params = stamped
		w.forwardLocked(item)
	}
}

// forwardLocked passes an event of this node on to the workload manager. Without
// one it has its local effect only.
func (w *workloadFlow) forwardLocked(i feed.Item) {
	if w.manager != nil {
		w.manager.Send(i)
	}
}

// nodeLost fails the jobs that depended on a node whose last claim is gone.
func (w *workloadFlow) nodeLost(n discovery.DirectoryNode) {
	name := n.Name
	if name == "" {
		name = n.HostUUID
	}
	for _, c := range w.index.Lost(n.HostUUID) {
		w.infer(c, jobs.OfflineText(name))
	}
}

// guessSilent fails a job whose origin has not mentioned it for long.
func (w *workloadFlow) guessSilent(c jobs.Candidate) {
	w.infer(c, jobs.SilentText(w.b.nodes.name(c.Key.OriginatedFrom)))
}

// infer takes the lock for one job at a time, so that a sweep over many holds up
// no reader.
func (w *workloadFlow) infer(c jobs.Candidate, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if change, ok := w.index.Infer(c, text); ok {
		w.emitLocked(change)
	}
}

// endOf ends the open jobs of a proxy process whose link is drained, here and at
// the peers (DEC-129).
func (w *workloadFlow) endOf(l *workerLink) {
	for _, c := range w.index.Of(jobs.FromProxy(l.process.Generation)) {
		w.mu.Lock()
		if change, ok := w.index.End(c, jobs.ProxyExitedText); ok {
			w.emitLocked(change)
			w.forwardLocked(feed.Item{Method: workload.MethodErrored, Params: upsertParams(change.Info), Key: change.Key})
		}
		w.mu.Unlock()
	}
}

// workloadsSpawned tells a new workload manager of this node's jobs (BR-58).
func workloadsSpawned(_ context.Context, b *Broker, l *workerLink) {
	b.registrations.set(discovery.Registration{Service: discovery.ServiceWorkload, Port: discovery.PortWorkload})
	w := b.workloads
	w.mu.Lock()
	defer w.mu.Unlock()
	w.manager, w.managerOf = feed.NewOutbox(l.conn, l.log(), nil), l
	for _, r := range w.index.Own() {
		w.manager.Send(feed.Item{Method: r.Method, Params: encode(r.Event), Key: r.Key})
	}
}

// workloadsDrained forgets a workload manager that is gone.
func workloadsDrained(b *Broker, l *workerLink) {
	w := b.workloads
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.managerOf == l {
		w.manager.Close()
		w.manager, w.managerOf = nil, nil
	}
}

// initial answers workloads:get-initial, in order with the events before and
// after it.
func (w *workloadFlow) initial(req *jsonrpc.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	req.Reply(listParams(w.index.All(maxListBytes)))
}

// listParams is the encoding of a brokerapi.Workloads without looking into its
// objects.
func listParams(list []json.RawMessage) json.RawMessage {
	b := []byte(`{"workloads":[`)
	for i, info := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, info...)
	}
	return append(b, "]}"...)
}

// fromSettings passes the two pushes of node-settings on to the client (ST-20).
func (b *Broker) fromSettings(_ *workerLink, req *jsonrpc.Request) bool {
	switch req.Method {
	case nodesettings.NotifyClusterIdentity, nodesettings.NotifyClusterAutoSync:
		b.client.notify(req.Method, req.Params)
		return true
	}
	return false
}
