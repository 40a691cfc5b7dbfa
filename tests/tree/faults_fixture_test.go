// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/shared/brokerapi"
	"nvpair/shared/serviceerror"
	"nvpair/tests/harness"
)

const (
	// patience is how long a test waits for what must happen.
	patience = 30 * time.Second
	// teardownWithin bounds the end of any tree (BR-77).
	teardownWithin = 15 * time.Second
	// orphansGoneWithin bounds the end of workers whose broker is gone.
	orphansGoneWithin = 2 * time.Second
	// shortPing is shortbroker's ping period.
	shortPing = 200 * time.Millisecond
)

// supervised are the supervisor names of what the broker runs, with the labels of
// their log lines, the flags for their paths and their binaries.
var supervised = []struct{ name, label, flag, binary string }{
	{"scanner", "scanner", "scanner-path", "nvpair-node-scanner"},
	{"errors", "nvpair-errors", "errors-path", "nvpair-errors"},
	{"settings", "settings", "settings-path", "nvpair-node-settings"},
}

// tree is a running broker on a host of its own, and its client.
type tree struct {
	*tally
	t *testing.T
	h *harness.Host
	p *harness.Proc
}

// startShort starts the broker with short budgets over the real workers. Later
// arguments win, so args can name other files.
func startShort(t *testing.T, args ...string) *tree {
	t.Helper()
	h := harness.NewHost(t, "alpha")
	paths := make([]string, 0, len(supervised)+len(args))
	for _, w := range supervised {
		paths = append(paths, "--"+w.flag+"="+filepath.Join(harness.Bin(t), w.binary))
	}
	return follow(t, h, h.Start(h.Command(harness.Program(t, "tests/tree/shortbroker"), append(paths, args...)...)))
}

// startReal starts the broker as it is shipped.
func startReal(t *testing.T, stderr *os.File, args ...string) *tree {
	t.Helper()
	h := harness.NewHost(t, "alpha")
	cmd := h.Command("nvpair-ui-broker", args...)
	cmd.Dir = harness.Bin(t)
	if stderr != nil {
		cmd.Stderr = stderr
	}
	return follow(t, h, h.Start(cmd))
}

// fake makes a fakeworker with that fault on a fresh path and returns the path.
func fake(t *testing.T, fault string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fake-"+fault)
	require.NoError(t, os.Symlink(harness.Program(t, "tests/tree/fakeworker"), path))
	return path
}

// follow returns the tree of a broker that was just started, once it is ready.
func follow(t *testing.T, h *harness.Host, p *harness.Proc) *tree {
	t.Helper()
	tr := &tree{tally: newTally(t, p), t: t, h: h, p: p}
	tr.await("app:ready", func(json.RawMessage) bool { return true })
	return tr
}

// worker returns what the broker says of a worker.
func (tr *tree) worker(name string) brokerapi.Worker {
	tr.t.Helper()
	var s brokerapi.Status
	tr.must("broker:status", "", &s)
	i := slices.IndexFunc(s.Workers, func(w brokerapi.Worker) bool { return w.Name == name })
	require.GreaterOrEqual(tr.t, i, 0, "no worker %s", name)
	return s.Workers[i]
}

// awaitWorker waits until the broker says that of a worker.
func (tr *tree) awaitWorker(name, what string, ok func(brokerapi.Worker) bool) brokerapi.Worker {
	tr.t.Helper()
	var w brokerapi.Worker
	harness.Eventually(tr.t, patience, name+" "+what, func() bool {
		w = tr.worker(name)
		return ok(w)
	})
	return w
}

// awaitOther waits for an incarnation with another process than pid.
func (tr *tree) awaitOther(name string, pid int) brokerapi.Worker {
	tr.t.Helper()
	return tr.awaitWorker(name, "runs in a new process", func(w brokerapi.Worker) bool {
		return w.State == brokerapi.StateRunning && w.PID != pid
	})
}

// awaitAnnounced waits until the present process of every worker has spoken.
func (tr *tree) awaitAnnounced() {
	tr.t.Helper()
	for _, w := range supervised {
		tr.awaitWorker(w.name, "has announced itself", func(w brokerapi.Worker) bool { return w.Version != "" })
	}
}

// signal sends a signal to a process of this host.
func (tr *tree) signal(pid int, signal syscall.Signal) {
	tr.t.Helper()
	require.Positive(tr.t, pid)
	require.NoError(tr.t, syscall.Kill(pid, signal))
}

// unchanged fails the test if one of these workers is not the process it was at
// the start.
func (tr *tree) unchanged(names ...string) {
	tr.t.Helper()
	for _, name := range names {
		w := tr.worker(name)
		require.Equal(tr.t, brokerapi.StateRunning, w.State, name)
		require.Zero(tr.t, w.Restarts, name)
		require.Empty(tr.t, w.LastEnd, name)
	}
}

// others returns the names of all workers but that one.
func others(name string) []string {
	var list []string
	for _, w := range supervised {
		if w.name != name {
			list = append(list, w.name)
		}
	}
	return list
}

// started returns the pids of a worker's incarnations, from the lines that tools
// look for (BR-8).
func (tr *tree) started(label string) []int {
	tr.t.Helper()
	line := regexp.MustCompile(`(?m)^\S+ \[\S+\] INFO ` + label + ` started path=\S+ pid=(\d+)$`)
	var pids []int
	for _, match := range line.FindAllStringSubmatch(tr.p.Stderr(), -1) {
		pid, err := strconv.Atoi(match[1])
		require.NoError(tr.t, err)
		pids = append(pids, pid)
	}
	return pids
}

// awaitEntry waits until the newest list of errors has the crash entry of a
// worker with that in its message.
func (tr *tree) awaitEntry(worker, message string) {
	tr.t.Helper()
	tr.awaitErrors("has the crash of "+worker+": "+message, func(list []serviceerror.ServiceError) bool {
		return slices.ContainsFunc(list, func(e serviceerror.ServiceError) bool {
			return e.ID == serviceerror.CrashID(worker) && strings.Contains(e.Message, message) &&
				e.Severity == serviceerror.SeverityError && e.NodeID != "" && e.TimestampMillis > 0
		})
	})
}

// awaitCleared waits until the newest list of errors has no crash entry of a
// worker.
func (tr *tree) awaitCleared(worker string) {
	tr.t.Helper()
	tr.awaitErrors("is without the crash of "+worker, func(list []serviceerror.ServiceError) bool {
		return !slices.ContainsFunc(list, func(e serviceerror.ServiceError) bool {
			return e.ID == serviceerror.CrashID(worker)
		})
	})
}

func (tr *tree) awaitErrors(what string, ok func([]serviceerror.ServiceError) bool) {
	tr.t.Helper()
	harness.Eventually(tr.t, patience, "the client's list "+what, func() bool {
		lists := tr.notifications("errors:update")
		var newest []serviceerror.ServiceError
		if len(lists) > 0 {
			require.NoError(tr.t, json.Unmarshal(lists[len(lists)-1], &newest))
		}
		return ok(newest)
	})
}

// descriptors returns how many files a process has open.
func descriptors(t *testing.T, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	require.NoError(t, err)
	return len(entries)
}

// shutDown ends the tree by the client's request and proves that the end is
// orderly, that nothing is left and that every request ever made was answered
// exactly once. shortbroker's exit status says that it left nothing either.
func (tr *tree) shutDown() {
	tr.t.Helper()
	tr.must("shutdown", "", nil)
	require.Equal(tr.t, 0, tr.p.AwaitExit(teardownWithin))
	tr.h.AwaitNone(time.Second)
	tr.wire.AwaitEnd(time.Second)
	tr.requireOneAnswerEach()
}

// pause lets time pass in which nothing may happen.
func pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	}
}

// tally is a client that keeps count: of each request it knows how often it was
// answered. Its methods but send belong to the test's goroutine.
type tally struct {
	t    *testing.T
	wire *harness.Wire
	out  *os.File // writes of one call are not interleaved

	mu     sync.Mutex // guards the rest
	last   int        // id of the newest request
	method map[string]string
	answer map[string][]harness.Frame // by id
	notes  map[string][]json.RawMessage
	seen   int // frames of the wire that are in here
}

func newTally(t *testing.T, p *harness.Proc) *tally {
	return &tally{
		t: t, wire: p.Wire(t), out: p.Stdin,
		method: make(map[string]string), answer: make(map[string][]harness.Frame),
		notes: make(map[string][]json.RawMessage),
	}
}

// send sends a request, with params as JSON text or "", and returns its id.
func (c *tally) send(method, params string) (id string, err error) {
	c.mu.Lock()
	c.last++
	id = strconv.Itoa(c.last)
	c.method[id] = method
	c.mu.Unlock()
	_, err = c.out.WriteString(harness.RequestLine(id, method, params) + "\n")
	return id, err
}

// answers returns the answers to a request so far.
func (c *tally) answers(id string) []harness.Frame {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.takeLocked()
	return c.answer[id]
}

func (c *tally) notifications(method string) []json.RawMessage {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.takeLocked()
	return c.notes[method]
}

// takeLocked sorts what has arrived.
func (c *tally) takeLocked() {
	frames := c.wire.Frames()
	for _, f := range frames[c.seen:] {
		if f.Method != "" {
			c.notes[f.Method] = append(c.notes[f.Method], f.Params)
			continue
		}
		c.answer[string(f.ID)] = append(c.answer[string(f.ID)], f)
	}
	c.seen = len(frames)
}

// call sends a request and waits for its answer.
func (c *tally) call(method, params string) harness.Frame {
	c.t.Helper()
	id, err := c.send(method, params)
	require.NoError(c.t, err)
	return c.awaitAnswer(id)
}

func (c *tally) awaitAnswer(id string) harness.Frame {
	c.t.Helper()
	harness.Eventually(c.t, patience, "an answer to request "+id, func() bool { return len(c.answers(id)) > 0 })
	return c.answers(id)[0]
}

// must is call for an answer that must be a result; into may be nil.
func (c *tally) must(method, params string, into any) {
	c.t.Helper()
	f := c.call(method, params)
	require.Nil(c.t, f.Error, "%s: %s", method, f.Line)
	if into != nil {
		require.NoError(c.t, json.Unmarshal(f.Result, into))
	}
}

// await waits for a notification that satisfies ok, whether it has arrived
// already or not.
func (c *tally) await(method string, ok func(json.RawMessage) bool) {
	c.t.Helper()
	harness.Eventually(c.t, patience, "a notification "+method+" that satisfies", func() bool {
		return slices.ContainsFunc(c.notifications(method), ok)
	})
}

// awaitAll waits until each request has an answer.
func (c *tally) awaitAll() {
	c.t.Helper()
	harness.Eventually(c.t, patience, "an answer to each request", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.takeLocked()
		return len(c.answer) >= len(c.method)
	})
}

// requireOneAnswerEach proves that each request was answered once: with a result,
// or with the error of what could not be asked.
func (c *tally) requireOneAnswerEach() {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.takeLocked()
	for id, method := range c.method {
		require.Len(c.t, c.answer[id], 1, "answers to request %s, %s", id, method)
		if e := c.answer[id][0].Error; e != nil {
			require.Equal(c.t, -32000, e.Code, "%s: %s", method, e.Message)
			require.Contains(c.t, []string{"settings/get-cluster-id", "errors:get-initial"}, method, e.Message)
		}
	}
	require.Len(c.t, c.answer, len(c.method), "answers to requests that were never made")
}

// outcomes counts the results and the errors of a method.
func (c *tally) outcomes(method string) (results, errors int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.takeLocked()
	for id, m := range c.method {
		for _, f := range c.answer[id] {
			switch {
			case m != method:
			case f.Error != nil:
				errors++
			default:
				results++
			}
		}
	}
	return results, errors
}

// traffic keeps requests on their way, own and relayed ones, until stop is called,
// which returns how many there were.
func (c *tally) traffic() (stop func() int) {
	const every, batch = 5 * time.Millisecond, 2
	quit, done := make(chan struct{}), make(chan int, 1)
	go func() {
		ticks := time.NewTicker(every)
		defer ticks.Stop()
		for n := 0; ; {
			select {
			case <-ticks.C:
			case <-quit:
				done <- n
				return
			}
			for range batch {
				for _, method := range []string{"settings/get-cluster-id", "ping", "errors:get-initial"} {
					if _, err := c.send(method, ""); err != nil {
						c.t.Errorf("send %s: %v", method, err)
						done <- n
						return
					}
					n++
				}
			}
		}
	}()
	stop = sync.OnceValue(func() int { close(quit); return <-done })
	c.t.Cleanup(func() { stop() })
	return stop
}
