// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"nvpair/internal/applog"
	"nvpair/internal/clustertrust"
	"nvpair/internal/jsonrpc"
	"nvpair/internal/supervise"
	"nvpair/services/broker/feed"
	"nvpair/shared/discovery"
)

// Broker is a running tree.
type Broker struct {
	cfg     Config
	started time.Time
	stop    context.CancelFunc // starts the teardown

	workers []*workerState // in catalog order; fixed after newBroker
	byName  map[string]*workerState

	client        *client
	nodes         *nodeStore
	manual        *manualNodes
	registrations *registrations
	membership    *membership
	funnel        *funnel
	facades       *facades
	manifests     *manifests
	workloads     *workloadFlow
	telemetry     *feed.Telemetry
	priorities    *priorities
}

// workerState is one worker over all its incarnations.
type workerState struct {
	definition
	path  string           // "" = not installed
	child *supervise.Child // nil = not installed, or its first start failed

	mu      sync.Mutex  // guards the rest
	link    *workerLink // of the running incarnation, nil when down
	failed  string      // why the first start failed
	version string      // as it announced itself
}

// current returns the link of the running incarnation, or nil.
func (w *workerState) current() *workerLink {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.link
}

func (w *workerState) setLink(l *workerLink) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.link = l
}

// Run starts the tree and serves the client until ctx ends, the client's stream
// ends or it asks for a shutdown; then it takes the tree down and returns when
// nothing of it is left. The error says why the tree could not start.
func Run(ctx context.Context, cfg Config) error {
	cfg.setDefaults()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	b := newBroker(cfg, stop)
	endJobs := b.workloads.start()
	if err := b.startWorkers(); err != nil {
		b.teardown()
		endJobs()
		_ = cfg.Client.Close()
		return err
	}
	b.client.serve(ctx)
	b.teardown()
	endJobs() // behind what the workers said while they stopped (BR-75)
	cfg.Log.Info("shutdown complete")
	return nil
}

func newBroker(cfg Config, stop context.CancelFunc) *Broker {
	b := &Broker{cfg: cfg, started: time.Now(), stop: stop, byName: make(map[string]*workerState)}
	b.client = newClient(b)
	b.nodes = newNodeStore(cfg.Log, b.nodesChanged)
	b.registrations = newRegistrations(b)
	b.membership = &membership{b: b, trust: clustertrust.Open(cfg.ClusterDir, cfg.Log)}
	b.funnel = newFunnel(b)
	b.facades = newFacades(b)
	b.manifests = newManifests(b)
	b.workloads = newWorkloadFlow(b)
	b.telemetry = feed.NewTelemetry()
	b.priorities = &priorities{b: b}
	b.nodes.unheard, b.nodes.lost = b.nodeUnheard, b.workloads.nodeLost
	b.manual = &manualNodes{b: b, known: make(map[string]manualNode), fixed: make(map[string]discovery.StaticNode)}
	for _, d := range catalog() {
		w := &workerState{definition: d}
		if !d.planned {
			w.path = cfg.Paths[d.binary]
		}
		b.workers = append(b.workers, w)
		b.byName[d.name] = w
	}
	return b
}

// startWorkers starts every installed worker in catalog order. Only the scanner
// must succeed; another whose first start fails stays down (BR-7).
func (b *Broker) startWorkers() error {
	for _, w := range b.workers {
		if w.path == "" {
			continue
		}
		child := supervise.New(b.childConfig(w))
		if err := child.Start(); err != nil {
			if w.required {
				return fmt.Errorf("start %s: %w", w.path, err)
			}
			b.cfg.Log.Warn("worker could not be started", "worker", w.name, "path", w.path, "err", err)
			w.mu.Lock()
			w.failed = err.Error()
			w.mu.Unlock()
			continue
		}
		w.child = child
	}
	return nil
}

func (b *Broker) childConfig(w *workerState) supervise.Config {
	return supervise.Config{
		Name:   w.name,
		Policy: b.cfg.Policy,
		Log:    b.cfg.Log,
		Command: func() *exec.Cmd {
			args := []string{"--log-level", applog.LevelName(b.cfg.Level.Level())}
			if w.args != nil {
				args = append(args, w.args(b)...)
			}
			return exec.Command(w.path, args...)
		},
		Attach:    func(p *supervise.Process) supervise.Link { return newWorkerLink(b, w, p, p.Transport()) },
		Stderr:    b.forwardStderr,
		Ours:      isOurs,
		Ended:     func(p *supervise.Process, cause string) { b.workerEnded(w, cause) },
		Healthy:   func() { b.funnel.clearCrash(w.name) },
		Exhausted: func() { b.funnel.reportExhausted(w.name) },
	}
}

// isOurs reports whether an executable was built from this module and so must
// announce itself. It is asked only about one that has been silent for long.
func isOurs(path string) bool {
	info, err := buildinfo.ReadFile(path)
	return err == nil && info.Main.Path == "nvpair"
}

// workerEnded drops what the broker derived from a worker, then reports the
// crash (BR-11).
func (b *Broker) workerEnded(w *workerState, cause string) {
	w.setLink(nil)
	if w.ended != nil {
		w.ended(b)
	}
	b.cfg.Log.Error("worker ended unexpectedly", "worker", w.name, "err", cause)
	b.funnel.reportCrash(w.name, cause)
}

// teardown stops the tree in the order of BR section 17.
func (b *Broker) teardown() {
	begin := time.Now()
	deadline := begin.Add(teardownBudget)
	b.stopWorker(b.byName[workerProxy], deadline)
	var wg sync.WaitGroup
	for _, w := range b.workers {
		wg.Go(func() { b.stopWorker(w, deadline) })
	}
	wg.Wait()
	if d := time.Since(begin); d > slowStop {
		b.cfg.Log.Warn("teardown was slow", "elapsed", d)
	}
}

// slowStop is the time from which a stop is worth a warning (BR-74).
const slowStop = 2 * time.Second

func (b *Broker) stopWorker(w *workerState, deadline time.Time) {
	if w.child == nil {
		return
	}
	slow := time.AfterFunc(slowStop, func() { b.cfg.Log.Warn("worker takes long to stop", "worker", w.name) })
	defer slow.Stop()
	w.child.Stop(deadline)
	w.setLink(nil)
}

// live returns the links of all running workers.
func (b *Broker) live() []*workerLink {
	var links []*workerLink
	for _, w := range b.workers {
		if l := w.current(); l != nil {
			links = append(links, l)
		}
	}
	return links
}

// encode is jsonrpc.Marshal for our own payload types, which always encode.
func encode(v any) json.RawMessage {
	b, err := jsonrpc.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	return b
}
