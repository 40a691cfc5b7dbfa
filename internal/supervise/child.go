// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"time"
)

// Link is how the owner speaks to one incarnation.
type Link interface {
	// Serve handles the link until the transport ends. It runs on a goroutine
	// of its own. ctx ends earlier: when the child is to stop or has ended.
	Serve(ctx context.Context)
	// CloseWrite ends the program's input after what is queued. It returns at once.
	CloseWrite()
	// Ping sends a ping with that number. It must not block.
	Ping(seq int64)
}

// Config is what a Child needs; nothing in it is optional. All functions are
// called from the child's goroutines, one at a time in the order of events unless
// said otherwise, and hold up the child while they run. None may call Stop.
type Config struct {
	Name   string // for the log
	Policy Policy
	Log    *slog.Logger

	// Command returns the command of the next incarnation. Streams and process
	// group are set by the Child.
	Command func() *exec.Cmd
	// Attach is called with each new process before anything is read from it
	// and returns its link.
	Attach func(*Process) Link
	// Stderr takes the program's diagnostics until the end of r, concurrently
	// with everything else.
	Stderr func(r io.Reader)
	// Ours tells whether the executable is one that should announce itself.
	Ours func(path string) bool

	// Ended reports an unexpected end, after the link has been drained. cause
	// is a phrase such as "exit status 1"; p is nil when a restart could not
	// start the program at all.
	Ended func(p *Process, cause string)
	// Healthy reports that a restarted process has been up for HealthyAfter.
	Healthy func()
	// Exhausted reports that the child stays down. Nothing follows it.
	Exhausted func()
}

// State is where a child is in its life.
type State string

const (
	StateRunning    State = "running"
	StateRestarting State = "restarting" // waits for its next start
	StateExhausted  State = "exhausted"  // budget used up, stays down
	StateStopping   State = "stopping"
	StateStopped    State = "stopped"
)

// Status is a child's state at one moment.
type Status struct {
	State      State
	PID        int // 0 unless a process exists
	Generation int // incarnations so far
	Since      time.Time
	LastEnd    string // cause of the last unexpected end, "" for none
}

// Child supervises one program. Make it with New.
type Child struct {
	cfg      Config
	stop     context.Context // ends when Stop is called
	stopNow  context.CancelFunc
	ended    chan struct{} // closed when the monitor has returned
	deadline time.Time     // for the stop; written before stop ends
	once     sync.Once     // guards deadline

	mu      sync.Mutex // guards the rest
	started bool
	status  Status
}

// New returns a child that has not been started.
func New(cfg Config) *Child {
	c := &Child{cfg: cfg, ended: make(chan struct{})}
	c.stop, c.stopNow = context.WithCancel(context.Background())
	c.status = Status{State: StateStopped, Since: time.Now()}
	return c
}

// Start starts the program and supervises it from then on, until Stop. If this
// first start fails nothing is supervised (BR-7) and Stop need not be called. It
// may be called once; after Stop it fails.
func (c *Child) Start() error {
	if !c.begin() {
		return errors.New("already stopped")
	}
	p, link, err := c.launch(1)
	if err != nil {
		close(c.ended)
		return err
	}
	go c.monitor(p, link)
	return nil
}

// begin marks the child as started, unless it is to stop already.
func (c *Child) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started = c.stop.Err() == nil
	return c.started
}

// Stop ends the program by the ladder of BR-73, the grace clipped so that
// deadline is met where possible, and returns when all of it is gone. It may be
// called more than once and by several goroutines; the first deadline counts.
func (c *Child) Stop(deadline time.Time) {
	c.once.Do(func() { c.deadline = deadline })
	c.stopNow()
	c.mu.Lock()
	started := c.started // cannot become true any more
	c.mu.Unlock()
	if started {
		<-c.ended
	}
}

// Status returns the child's present state.
func (c *Child) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

func (c *Child) setState(s State, pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status.State, c.status.PID, c.status.Since = s, pid, time.Now()
}

// monitor owns the child's life. It is the only goroutine that starts, judges
// and ends processes.
func (c *Child) monitor(p *Process, link Link) {
	defer close(c.ended)
	restarts := 0 // in this streak
	for {
		if p != nil {
			cause, healthy := c.watch(p, link)
			if c.stop.Err() != nil {
				c.setState(StateStopped, 0)
				return
			}
			if healthy {
				restarts = 0
			}
			c.unexpected(p, cause)
		}
		restarts++
		if restarts > c.cfg.Policy.Budget {
			c.setState(StateExhausted, 0)
			c.cfg.Log.Error("restart budget used up, stays down", "worker", c.cfg.Name, "restarts", c.cfg.Policy.Budget)
			c.cfg.Exhausted()
			return
		}
		if !c.pause(c.cfg.Policy.delay(restarts)) {
			c.setState(StateStopped, 0)
			return
		}
		var err error
		if p, link, err = c.launch(c.Status().Generation + 1); err != nil {
			c.unexpected(nil, fmt.Sprintf("could not be started: %v", err))
		}
	}
}

func (c *Child) unexpected(p *Process, cause string) {
	c.mu.Lock()
	c.status.State, c.status.PID, c.status.Since = StateRestarting, 0, time.Now()
	c.status.LastEnd = cause
	c.mu.Unlock()
	c.cfg.Ended(p, cause)
}

// pause waits, and reports false if the child is to stop instead (BR-17).
func (c *Child) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.stop.Done():
	}
	return c.stop.Err() == nil // both may have happened
}

func (c *Child) launch(generation int) (*Process, Link, error) {
	p, err := spawn(c.cfg.Command(), generation)
	if err != nil {
		return nil, nil, err
	}
	link := c.cfg.Attach(p)
	c.mu.Lock()
	c.status.State, c.status.PID, c.status.Since = StateRunning, p.PID, time.Now()
	c.status.Generation = generation
	c.mu.Unlock()
	return p, link, nil
}

// watch serves one incarnation until all of it is gone. cause says how it ended,
// healthy whether it was up long enough to end the streak.
func (c *Child) watch(p *Process, link Link) (cause string, healthy bool) {
	ctx, cancel := context.WithCancel(c.stop)
	defer cancel()
	linkEnded := make(chan struct{})
	errEnded := make(chan struct{})
	go func() { defer close(linkEnded); link.Serve(ctx) }()
	go func() { defer close(errEnded); c.cfg.Stderr(p.stderr) }()
	go func() { defer close(p.exited); p.group.AwaitExit() }()

	cause, healthy = c.attend(p, link, linkEnded)
	switch {
	case cause == lostLink:
		// It may be in the middle of an end that something else asked for.
		c.ladder(p, link, c.cfg.Policy.StopGrace)
	case c.stop.Err() != nil && cause == "":
		c.ladder(p, link, time.Until(c.deadline))
	}
	state := c.finish(p, cancel, linkEnded, errEnded)
	if cause == "" {
		cause = state
	}
	return cause, healthy
}

// attend waits for the end of a running process: its exit (cause ""), a hang, a
// lost link, or the wish to stop (cause "" too).
func (c *Child) attend(p *Process, link Link, linkEnded <-chan struct{}) (cause string, healthy bool) {
	up := time.NewTimer(c.cfg.Policy.HealthyAfter)
	defer up.Stop()
	ticks := time.NewTicker(c.cfg.Policy.PingEvery)
	defer ticks.Stop()
	deaf := p.deaf
	var lost <-chan time.Time
	for {
		select {
		case <-p.exited:
			return "", healthy
		case <-c.stop.Done():
			return "", healthy
		case <-up.C:
			healthy = true
			if p.Generation > 1 {
				c.cfg.Healthy()
			}
		case <-linkEnded:
			// A program that ends closes its output a moment before it is
			// gone; one that only closed its output is of no more use.
			linkEnded, deaf, lost = nil, nil, time.After(c.cfg.Policy.Drain)
		case <-deaf: // likewise
			linkEnded, deaf, lost = nil, nil, time.After(c.cfg.Policy.Drain)
		case <-lost:
			return lostLink, healthy
		case <-ticks.C:
			ping, hung := p.live.tick(c.cfg.Policy, func() bool { return c.cfg.Ours(p.Path) })
			if hung != "" {
				return hung, healthy
			}
			if ping > 0 {
				link.Ping(ping)
			}
		}
	}
}

// lostLink is the cause of an end that we made because nothing could be said to a
// process any more.
const lostLink = "closed its link"

// ladder asks a process to end, then makes it: end of input, terminate signal,
// kill (BR-73). left is the time there is for the first step, as far as it is
// more than the least.
func (c *Child) ladder(p *Process, link Link, left time.Duration) {
	c.setState(StateStopping, p.PID)
	link.CloseWrite()
	grace := max(min(c.cfg.Policy.StopGrace, left), c.cfg.Policy.MinGrace)
	if p.awaitExit(grace) {
		return
	}
	c.cfg.Log.Warn("did not end with its input, terminating it", "worker", c.cfg.Name, "pid", p.PID, "elapsed", grace)
	p.group.Terminate()
	if !p.awaitExit(c.cfg.Policy.TermGrace) {
		c.cfg.Log.Warn("did not end on the signal, killing it", "worker", c.cfg.Name, "pid", p.PID)
	}
}

// finish leaves nothing of a process behind: group, descriptors, goroutines. It
// returns how the leader ended.
func (c *Child) finish(p *Process, cancel context.CancelFunc, linkEnded, errEnded <-chan struct{}) string {
	p.group.Kill() // whatever is left of it, the leader included
	if !p.awaitExit(c.cfg.Policy.KillGrace) {
		c.cfg.Log.Error("survives a kill, abandoned", "worker", c.cfg.Name, "pid", p.PID)
		p.closePipes()
		cancel()
		<-linkEnded
		<-errEnded
		return "survives a kill"
	}
	state := p.group.Reap()
	cancel()
	// The last frames and lines are still in the pipes. A descendant that
	// left the group may hold them open, so the wait is bounded.
	drained := time.AfterFunc(c.cfg.Policy.Drain, p.closePipes)
	<-linkEnded
	<-errEnded
	drained.Stop()
	p.closePipes()
	return describe(state)
}

func (p *Process) awaitExit(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
		return false
	}
}

func (p *Process) closePipes() { closeAll(p.stdin, p.stdout, p.stderr) }

func describe(s *os.ProcessState) string {
	if s == nil {
		return "ended"
	}
	return s.String()
}
