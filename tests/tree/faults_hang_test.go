// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/tests/harness"
)

func TestAHungWorkerIsReplaced(t *testing.T) {
	t.Parallel()
	for _, w := range supervised {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			tr := startShort(t)
			tr.awaitAnnounced()
			hung := tr.worker(w.name).PID
			tr.stop(hung)
			stuck, err := tr.send("settings/get-cluster-id", "") // lost with the worker, if that is the one
			require.NoError(t, err)
			state := tr.awaitOther(w.name, hung)
			require.Equal(t, "hung: 3 pings unanswered", state.LastEnd)
			require.False(t, tr.exists(hung))
			require.Equal(t, w.name == "settings", tr.awaitAnswer(stuck).Error != nil)

			if w.name == "errors" {
				tr.p.AwaitStderr(`ERROR worker ended unexpectedly worker=errors err="hung: 3 pings unanswered"`, patience)
			} else {
				tr.awaitEntry(w.name, "hung: 3 pings unanswered")
			}
			tr.awaitHealthy(w.name)
			tr.awaitCleared(w.name)
			tr.requireNeverReported("errors")
			require.Equal(t, 1, tr.worker(w.name).Restarts)
			tr.unchanged(others(w.name)...)
			tr.shutDown()
		})
	}
}

// stop stops a process and waits until none of its threads runs.
func (tr *tree) stop(pid int) {
	tr.t.Helper()
	tr.signal(pid, syscall.SIGSTOP)
	harness.Eventually(tr.t, patience, fmt.Sprintf("process %d is stopped", pid), func() bool {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		require.NoError(tr.t, err)
		return len(tasks) > 0 && !slices.ContainsFunc(tasks, func(task string) bool {
			stat, err := os.ReadFile(task)
			return err == nil && !strings.Contains(string(stat), ") T ")
		})
	})
}

// exists reports whether a process is on the host.
func (tr *tree) exists(pid int) bool {
	return slices.ContainsFunc(tr.h.Processes(), func(p harness.ProcInfo) bool { return p.PID == pid })
}

// With the real budgets: noticed after three pings, each 4 s after the one before,
// which is within 20 s (DEC-113), and started again a second later (BR-9).
func TestAHungWorkerOfARealBrokerIsReplaced(t *testing.T) {
	t.Parallel()
	tr := startReal(t, nil)
	tr.awaitAnnounced()
	hung := tr.worker("settings").PID
	stopped := time.Now()
	tr.stop(hung)
	state := tr.awaitOther("settings", hung) // patience is half as much again
	t.Logf("replaced after %v", time.Since(stopped).Round(time.Millisecond))
	require.Equal(t, "hung: 3 pings unanswered", state.LastEnd)
	tr.awaitEntry("settings", "hung: 3 pings unanswered")
	tr.must("settings/get-cluster-id", "", nil)
	tr.unchanged(others("settings")...)
	tr.shutDown()
}

// A machine that was suspended, or a tree that somebody stopped, finds everything
// as it was: hanging is counted in pings, not in time (DEC-109).
func TestATreeThatWasStoppedAndContinuedRestartsNothing(t *testing.T) {
	t.Parallel()
	const misses = 8
	for _, last := range []string{"broker", "workers"} {
		t.Run("continued last: "+last, func(t *testing.T) {
			t.Parallel()
			tr := startShort(t, fmt.Sprintf("--ping-misses=%d", misses))
			tr.awaitAnnounced()
			workers := tr.children()
			tr.signalAll(workers, syscall.SIGSTOP)
			pause(misses / 2 * shortPing) // some pings are unanswered, not too many
			tr.signal(tr.p.PID, syscall.SIGSTOP)
			pause(2 * misses * shortPing)

			if last == "broker" {
				tr.signalAll(workers, syscall.SIGCONT)
				tr.signal(tr.p.PID, syscall.SIGCONT)
			} else {
				tr.signal(tr.p.PID, syscall.SIGCONT)
				tr.must("ping", "", nil) // the broker runs, and has counted at most one miss more
				tr.signalAll(workers, syscall.SIGCONT)
			}
			tr.must("settings/get-cluster-id", "", nil)
			pause((misses + 2) * shortPing)
			tr.unchanged("scanner", "errors", "settings")
			for _, list := range tr.notifications("errors:update") {
				require.Equal(t, "[]", string(list))
			}
			tr.shutDown()
		})
	}
}

// children returns the host's processes without the broker.
func (tr *tree) children() []harness.ProcInfo {
	tr.t.Helper()
	children := slices.DeleteFunc(tr.h.Processes(), func(p harness.ProcInfo) bool { return p.PID == tr.p.PID })
	require.Len(tr.t, children, len(supervised))
	return children
}

func (tr *tree) signalAll(processes []harness.ProcInfo, signal syscall.Signal) {
	tr.t.Helper()
	for _, p := range processes {
		tr.signal(p.PID, signal)
	}
}
