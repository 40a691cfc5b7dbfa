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
	{"node-info", "node-info", "node-info-path", "nvpair-node-info"},
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
func pause(d time.Duration) { <-time.After(d) }
