// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/shared/brokerapi"
	"nvpair/shared/serviceerror"
	"nvpair/tests/harness"
)

// budget is how many restarts a streak has (BR-9).
const budget = 5

func TestAKilledWorkerIsRestartedWhileTheClientGoesOn(t *testing.T) {
	t.Parallel()
	for _, w := range supervised {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			tr := startShort(t)
			tr.awaitAnnounced()
			before := descriptors(t, tr.p.PID)
			stop := tr.traffic()

			pids := []int{tr.worker(w.name).PID}
			for range 2 {
				for range budget {
					tr.signal(pids[len(pids)-1], syscall.SIGKILL)
					pids = append(pids, tr.awaitOther(w.name, pids[len(pids)-1]).PID)
				}
				if w.name != "errors" { // whose own end is in the log only (BR-14)
					tr.awaitEntry(w.name, "ended unexpectedly (signal: killed)")
				}
				tr.awaitHealthy(w.name)
				tr.awaitCleared(w.name)
			}
			requests := stop()
			tr.awaitAll()

			require.Equal(t, pids, tr.started(w.label))
			require.Len(t, slices.Compact(slices.Sorted(slices.Values(pids))), 2*budget+1, "a pid came twice: %v", pids)
			state := tr.worker(w.name)
			require.Equal(t, 2*budget, state.Restarts)
			require.Equal(t, "signal: killed", state.LastEnd)
			tr.unchanged(others(w.name)...)
			tr.requireNeverReported("errors")
			results, failures := tr.outcomes("settings/get-cluster-id")
			t.Logf("%d requests; of those to settings %d answered, %d failed", requests, results, failures)
			require.NotZero(t, results)
			require.Equal(t, w.name == "settings", failures > 0)
			harness.Eventually(t, patience, "the broker has as many descriptors as before", func() bool {
				return descriptors(t, tr.p.PID) == before
			})
			tr.shutDown()
		})
	}
}

// awaitHealthy waits until a worker has been up long enough to end its streak.
func (tr *tree) awaitHealthy(name string) {
	tr.t.Helper()
	const healthyAfter, margin = time.Second, 500 * time.Millisecond // shortbroker's; its timer starts a moment later
	tr.awaitWorker(name, "is healthy", func(w brokerapi.Worker) bool {
		return w.State == brokerapi.StateRunning && w.SinceMillis > (healthyAfter+margin).Milliseconds()
	})
}

// requireNeverReported proves that no list that the client got had the crash entry
// of a worker.
func (tr *tree) requireNeverReported(worker string) {
	tr.t.Helper()
	for _, list := range tr.notifications("errors:update") {
		require.NotContains(tr.t, string(list), serviceerror.CrashID(worker))
	}
}

func TestAWorkerThatUsesUpItsRestartsStaysDownAlone(t *testing.T) {
	t.Parallel()
	for _, w := range supervised {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			tr := startShort(t, "--healthy-after=1m")
			tr.awaitAnnounced()
			state := tr.killUntilExhausted(w.name)
			require.Equal(t, budget, state.Restarts)
			require.Zero(t, state.PID)
			require.Equal(t, "signal: killed", state.LastEnd)
			require.Len(t, tr.started(w.label), 1+budget)

			if w.name == "errors" {
				tr.requireNeverReported("errors")
			} else {
				tr.awaitEntry(w.name, "stays down")
			}
			pause(10 * 100 * time.Millisecond) // ten times the longest delay
			require.Equal(t, brokerapi.StateExhausted, tr.worker(w.name).State)
			tr.requireAnswersWithout(w.name)
			tr.unchanged(others(w.name)...)
			tr.shutDown()
		})
	}
}

// killUntilExhausted kills each incarnation of a worker as soon as there is one.
func (tr *tree) killUntilExhausted(name string) brokerapi.Worker {
	tr.t.Helper()
	var killed int
	return tr.awaitWorker(name, "is exhausted", func(w brokerapi.Worker) bool {
		if w.State == brokerapi.StateRunning && w.PID != killed {
			killed = w.PID
			tr.signal(killed, syscall.SIGKILL)
		}
		return w.State == brokerapi.StateExhausted
	})
}

// requireAnswersWithout proves what the client gets while one worker is down for
// good.
func (tr *tree) requireAnswersWithout(name string) {
	tr.t.Helper()
	settings := tr.call("settings/get-cluster-id", "")
	errors := tr.call("errors:get-initial", "")
	nodes := tr.call("discovery:get-nodes", "")
	require.Contains(tr.t, string(nodes.Result), `"id":"alpha"`, "what the scanner said last stands")
	switch name {
	case "settings":
		require.NotNil(tr.t, settings.Error)
		require.Equal(tr.t, harness.ErrorObject{Code: -32000, Message: "node-settings not available"}, *settings.Error)
		require.Contains(tr.t, string(errors.Result), serviceerror.CrashID(name))
	case "errors":
		require.JSONEq(tr.t, `{"value":""}`, string(settings.Result))
		require.Equal(tr.t, "[]", string(errors.Result))
		tr.must("errors:report", `{"id":"client:x","message":"x"}`, nil)
	default:
		require.JSONEq(tr.t, `{"value":""}`, string(settings.Result))
		require.Contains(tr.t, string(errors.Result), serviceerror.CrashID(name))
	}
}
