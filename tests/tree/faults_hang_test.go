// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"slices"
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
			tr.signal(hung, syscall.SIGSTOP)
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
	tr.signal(hung, syscall.SIGSTOP)
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
	for _, late := range []string{"no", "workers"} {
		t.Run("late: "+late, func(t *testing.T) {
			t.Parallel()
			const ping = 2 * shortPing // so that the late workers are late by much less than three of these
			tr := startShort(t, "--ping-every="+ping.String())
			tr.awaitAnnounced()
			pause(2 * ping) // pings are on their way
			workers := tr.stopAll()
			pause(10 * ping)

			if late == "workers" {
				tr.signal(tr.p.PID, syscall.SIGCONT)
				tr.must("ping", "", nil) // answered by a broker whose workers still stand
				tr.continueAll(workers)
			} else {
				tr.continueAll(workers)
				tr.signal(tr.p.PID, syscall.SIGCONT)
			}
			tr.must("settings/get-cluster-id", "", nil)
			pause(6 * ping) // twice as long as a hung worker would be left
			tr.unchanged("scanner", "errors", "settings")
			for _, list := range tr.notifications("errors:update") {
				require.Equal(t, "[]", string(list))
			}
			tr.shutDown()
		})
	}
}

// stopAll stops the broker, then all others on the host, and returns those.
func (tr *tree) stopAll() (workers []harness.ProcInfo) {
	tr.t.Helper()
	tr.signal(tr.p.PID, syscall.SIGSTOP)
	for _, p := range tr.h.Processes() {
		if p.PID != tr.p.PID {
			workers = append(workers, p)
		}
	}
	require.Len(tr.t, workers, len(supervised))
	for _, p := range workers {
		tr.signal(p.PID, syscall.SIGSTOP)
	}
	harness.Eventually(tr.t, patience, "all are stopped", func() bool {
		return !slices.ContainsFunc(tr.h.Processes(), func(p harness.ProcInfo) bool { return p.State != "T" })
	})
	return workers
}

func (tr *tree) continueAll(workers []harness.ProcInfo) {
	tr.t.Helper()
	for _, p := range workers {
		tr.signal(p.PID, syscall.SIGCONT)
	}
}
