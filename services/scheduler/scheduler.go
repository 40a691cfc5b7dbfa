// SPDX-License-Identifier: Apache-2.0

// Package scheduler is the worker that ranks the nodes, least loaded first, and
// tells its parent whenever the ranking changes. It decides preference, never a
// request. It opens no port and keeps nothing: after a restart its inputs are
// replayed.
//
// Inputs are applied one at a time by the link's loop, each at the cost of what
// it changes. A ranking is computed where it is written: an input that changes
// something only marks the output, and the link's writer computes the ranking of
// that moment as the last thing before its write. So no ranking can overtake a
// newer one, a parent that does not read costs nothing, and what it then gets is
// the newest.
//
// A ranking counts as delivered when the write that carried it has succeeded as
// a whole. Otherwise it is still due, and is tried again with the next change, at
// the latest one interval later.
//
// Without input and without GPU samples that could become stale, nothing runs.
package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log/slog"
	"sync"
	"time"

	"nvpair/internal/jsonrpc"
	"nvpair/internal/worker"
	"nvpair/shared/discovery"
	"nvpair/shared/engine"
	"nvpair/shared/schedule"
	"nvpair/shared/workload"
)

const (
	defaultInterval = time.Second            // JS-6
	minInterval     = 200 * time.Millisecond // JS-6
	maxInterval     = 24 * time.Hour

	// outputWindow is the least time between two outputs (DEC-138).
	outputWindow = 40 * time.Millisecond
	// tellEvery limits what bad input can write to the log.
	tellEvery = time.Minute
)

// Config is what the worker needs from outside.
type Config struct {
	worker.Config
	// Interval is how late at most stale telemetry is noticed and a failed
	// write repeated; 0 is 1 s. It is kept within 200 ms and 24 h.
	Interval time.Duration
}

// Main runs the worker from its command line and returns its exit status.
func Main(args []string, version string, std worker.Streams) int {
	var interval time.Duration
	return worker.Main(worker.Program{
		Name:    "nvpair-job-scheduler",
		Version: version,
		Flags: func(fs *flag.FlagSet) {
			fs.DurationVar(&interval, "interval", defaultInterval, "how late stale telemetry may be noticed, at least 200ms")
		},
		Run: func(ctx context.Context, common worker.Config) error {
			return Run(ctx, Config{Config: common, Interval: clampInterval(interval)})
		},
	}, args, std)
}

// Run serves the link until ctx ends or the link closes, then returns nil.
func Run(ctx context.Context, cfg Config) error {
	newService(cfg).run(ctx)
	return nil
}

func clampInterval(d time.Duration) time.Duration { return min(max(d, minInterval), maxInterval) }

// service is the worker's state.
type service struct {
	log  *slog.Logger
	link *worker.Link

	window  *time.Timer // runs while windowOpen
	round   *time.Timer // runs while roundOpen
	outputs []*output   // in the order in which they are written

	mu         sync.Mutex // guards what follows up to the tallies; only memory is touched under it
	view       view
	interval   time.Duration
	current    []schedule.NodeRank // the newest ranking; never changed, only replaced
	marked     bool                // the streams are marked and not yet asked
	retry      bool                // the last write failed
	lastOutput time.Time           // when a ranking was last handed to the writer
	windowOpen bool                // a change waits for the end of the window
	roundOpen  bool                // an interval is running

	// Of the loop alone: what could not be used since the last line about it.
	invalid, excess tally
}

func newService(cfg Config) *service {
	if cfg.Interval == 0 {
		cfg.Interval = defaultInterval
	}
	s := &service{
		log:      cfg.Log,
		window:   stoppedTimer(),
		round:    stoppedTimer(),
		view:     newView(),
		interval: clampInterval(cfg.Interval),
	}
	cfg.Link = &watchedLink{ReadWriteCloser: cfg.Link, wrote: s.wrote}
	cfg.MaxFrameBytes = worker.SnapshotFrame
	s.link = worker.NewLink(cfg.Config)
	for i, e := range engine.All() {
		stream := s.link.NewStream(schedule.NotifyPriority, func() (json.RawMessage, bool) { return s.snapshot(i) })
		s.outputs = append(s.outputs, &output{engine: e.ID, stream: stream})
	}
	return s
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(maxInterval)
	t.Stop()
	return t
}

func (s *service) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var timers sync.WaitGroup
	defer timers.Wait()
	defer cancel()
	timers.Go(func() { s.keepTime(ctx) })
	s.link.Serve(ctx, s.handle)
}

// keepTime waits for the timers until ctx ends.
func (s *service) keepTime(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.window.C:
			s.windowEnded()
		case <-s.round.C:
			s.roundEnded()
		}
	}
}

func (s *service) handle(req *jsonrpc.Request) {
	if !req.IsNotification() {
		s.request(req)
		return
	}
	switch req.Method {
	case workload.MethodUpsert:
		j, err := decodeJob(req.Params)
		s.apply(req, err, func(time.Time) (bool, error) { return s.view.upsert(j) })
	case workload.MethodRemove:
		ref, err := decodeRemoval(req.Params)
		s.apply(req, err, func(time.Time) (bool, error) { return s.view.remove(ref), nil })
	case schedule.NotifyTelemetry:
		sample, err := decodeSample(req.Params)
		s.apply(req, err, func(now time.Time) (bool, error) { return s.view.take(sample, now) })
	case discovery.NotifyNodesChanged:
		s.setNodes(req)
	default:
		s.link.Unknown(req)
	}
}

func (s *service) setNodes(req *jsonrpc.Request) {
	ids, err := decodeNodes(req.Params)
	if errors.Is(err, errSkippedNode) {
		s.tell(&s.excess, "bound reached", req.Method, err)
		err = nil
	}
	s.apply(req, err, func(now time.Time) (bool, error) { return s.view.setNodes(ids, now) })
}

// apply makes the change of one input unless its params were no good, and has a
// new ranking written if there may be one (JS-12). change runs under the lock.
func (s *service) apply(req *jsonrpc.Request, invalid error, change func(now time.Time) (bool, error)) {
	if invalid != nil {
		s.tell(&s.invalid, "invalid notification dropped", req.Method, invalid) // JS-11
		return
	}
	s.mu.Lock()
	now := time.Now()
	changed, beyond := change(now)
	due := changed && s.dueLocked(now)
	if changed {
		s.openRoundLocked()
	}
	s.mu.Unlock()
	if due {
		s.mark()
	}
	if beyond != nil {
		s.tell(&s.excess, "bound reached", req.Method, beyond)
	}
}

// tally counts what one log line stands for.
type tally struct {
	count int
	told  time.Time
}

func (s *service) tell(t *tally, msg, method string, err error) {
	t.count++
	if now := time.Now(); now.Sub(t.told) >= tellEvery {
		s.log.Warn(msg, "method", method, "err", err, "inputs", t.count)
		t.count, t.told = 0, now
	}
}
