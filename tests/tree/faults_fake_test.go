// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/shared/brokerapi"
	"nvpair/tests/harness"
)

// fakeRequests is how many relayed requests a fake gets at once.
const fakeRequests = 10

// ask sends requests of that method, with pings between them, and waits for all
// answers.
func (tr *tree) ask(method string) (ids []string) {
	tr.t.Helper()
	for range fakeRequests {
		id, err := tr.send(method, "")
		require.NoError(tr.t, err)
		ids = append(ids, id)
		_, err = tr.send("ping", "")
		require.NoError(tr.t, err)
	}
	tr.awaitAll()
	return ids
}

// requireFake proves that each of these requests got the fake's proper answer.
func (tr *tree) requireFake(ids []string) {
	tr.t.Helper()
	for _, id := range ids {
		require.Equal(tr.t, `"fake"`, string(tr.answers(id)[0].Result), tr.answers(id)[0].Line)
	}
}

func TestAWorkerThatMisbehavesOnItsLinkIsServedAllTheSame(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		fault  string
		stderr string // what stands in the tree's diagnostics
	}{
		{"answers-twice", ""},
		{"answers-unknown-ids", ""},
		{"answers-garbage", "WARN malformed frame skipped link=settings"},
		{"sends-requests", ""},
		{"floods-stderr", "\n" + strings.Repeat("x", 1<<20) + "\n"}, // one line, cut (DEC-124)
	} {
		t.Run(tt.fault, func(t *testing.T) {
			t.Parallel()
			tr := startShort(t, "--settings-path="+fake(t, tt.fault))
			tr.awaitAnnounced()
			tr.requireFake(tr.ask("settings/get-cluster-id"))
			harness.Eventually(t, patience, "the diagnostics have what belongs there", func() bool {
				return strings.Contains(tr.p.Stderr(), tt.stderr)
			})
			pause(4 * shortPing) // it goes on answering pings, so it stays
			tr.unchanged("scanner", "errors", "settings")
			require.NotContains(t, tr.p.Stderr(), "received an answer", "its requests are not served (WR-29)")
			require.NotContains(t, tr.p.Stderr(), "received no frame")
			require.Len(t, tr.notifications("app:ready"), 1)
			tr.shutDown()
		})
	}
}

// Whatever does not fit a link's limit is skipped; what fits exactly is not.
func TestAFrameOverTheLimitIsSkipped(t *testing.T) {
	t.Parallel()
	// Such frames take time when the race detector watches, and count when they are complete.
	tr := startShort(t, "--ping-every=3s", "--errors-path="+fake(t, "fills-frames"))
	tr.awaitAnnounced()
	require.Equal(t, "[]", string(tr.call("errors:get-initial", "").Result))
	tr.await("errors:update", func(list json.RawMessage) bool {
		return strings.HasPrefix(string(list), `[{"id":"8388608",`)
	})
	tr.p.AwaitStderr("WARN frame over the limit skipped link=errors limit=8388608", patience)
	for _, list := range tr.notifications("errors:update") {
		require.False(t, strings.HasPrefix(string(list), `[{"id":"8388609",`))
	}
	tr.unchanged("scanner", "errors", "settings")
	tr.shutDown()
}

// An answer over the limit is no answer: the call's deadline ends it.
func TestAnAnswerOverTheLimitIsATimeout(t *testing.T) {
	t.Parallel()
	tr := startShort(t, "--settings-path="+fake(t, "answers-too-much"))
	tr.awaitAnnounced()
	f := tr.call("settings/get-cluster-id", "")
	require.NotNil(t, f.Error, "%.200s", f.Line)
	require.Equal(t, -32000, f.Error.Code)
	require.Contains(t, f.Error.Message, "settings call failed: ")
	tr.unchanged("scanner", "errors", "settings")
	tr.shutDown()
}

func TestAWorkerOfNoUseIsReplaced(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ fault, cause string }{
		{"never-says-hello", "hung: it never said hello"},
		{"closes-stdout", "closed its link"},
		{"dies-in-a-request", "exit status 1"},
		{"dies-in-an-answer", "exit status 1"},
	} {
		t.Run(tt.fault, func(t *testing.T) {
			t.Parallel()
			tr := startShort(t, "--healthy-after=1m", "--settings-path="+fake(t, tt.fault))
			ids := tr.ask("settings/get-cluster-id")
			for _, id := range ids { // without a hello it is a worker like any other until its time is over
				failed := tr.answers(id)[0].Error != nil
				require.True(t, failed || tt.fault == "never-says-hello", tr.answers(id)[0].Line)
			}
			state := tr.awaitWorker("settings", "was replaced", func(w brokerapi.Worker) bool { return w.Restarts > 0 })
			require.Equal(t, tt.cause, state.LastEnd)
			tr.awaitEntry("settings", "")
			tr.unchanged("scanner", "errors")
			tr.shutDown()
		})
	}
}

// A program that is not ours promised nothing, so nothing is held against it
// (DEC-3).
func TestAForeignWorkerThatNeverSaysHelloIsLeftAlone(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "foreign")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\nexec 3>&1\nexec cat >&2\n"), 0o700))
	const ping = 50 * time.Millisecond
	tr := startShort(t, "--ping-every="+ping.String(), "--settings-path="+script)
	pause(30 * ping) // ours would have had 8
	tr.unchanged("settings")
	require.NotContains(t, tr.p.Stderr(), "worker/ping")
	tr.shutDown()
}

// The whole ladder is climbed, and it has an end (BR-73).
func TestAWorkerThatWillNotEndDelaysTheShutdownByItsGracesOnly(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ fault, stderr string }{
		{"ignores-the-end-of-input", `WARN did not end with its input, terminating it worker=settings`},
		{"ignores-the-signal", `WARN did not end on the signal, killing it worker=settings`},
		{"forks-a-helper", ""},
	} {
		t.Run(tt.fault, func(t *testing.T) {
			t.Parallel()
			tr := startShort(t, "--settings-path="+fake(t, tt.fault))
			tr.awaitAnnounced()
			tr.requireFake(tr.ask("settings/get-cluster-id"))
			tr.shutDown()
			require.Regexp(t, tt.stderr, tr.p.Stderr())
		})
	}
}

// What a worker leaves in its group ends with it, also when it is killed.
func TestAHelperOfAKilledWorkerEndsWithIt(t *testing.T) {
	t.Parallel()
	tr := startShort(t, "--settings-path="+fake(t, "forks-a-helper"))
	tr.awaitAnnounced()
	helper := tr.helper()
	killed := tr.worker("settings").PID
	tr.signal(killed, syscall.SIGKILL)
	tr.awaitOther("settings", killed)
	require.False(t, tr.exists(helper))
	tr.shutDown()
}

// A helper that left the group is beyond reach. It holds the worker's streams, and
// still it holds up neither the restart nor the shutdown.
func TestAHelperThatLeftTheGroupHoldsUpNothing(t *testing.T) {
	t.Parallel()
	tr := startShort(t, "--settings-path="+fake(t, "forks-an-escaping-helper"))
	tr.awaitAnnounced()
	helpers := []int{tr.helper()}
	t.Cleanup(func() { // runs before the host looks for what is left
		for _, helper := range helpers {
			_ = syscall.Kill(helper, syscall.SIGKILL)
		}
	})
	killed := tr.worker("settings").PID
	tr.signal(killed, syscall.SIGKILL)
	tr.awaitOther("settings", killed)
	tr.requireFake(tr.ask("settings/get-cluster-id"))
	tr.must("shutdown", "", nil)
	require.Equal(t, 0, tr.p.AwaitExit(teardownWithin))
	left := tr.h.Processes()
	for _, p := range left {
		helpers = append(helpers, p.PID)
		require.Equal(t, "sleep", p.Name)
	}
	require.Len(t, left, 2, "the helpers of two incarnations")
	tr.requireOneAnswerEach()
}

// helper waits for the program that a fake forks and returns its pid.
func (tr *tree) helper() (pid int) {
	tr.t.Helper()
	harness.Eventually(tr.t, patience, "the fake's helper runs", func() bool {
		processes := tr.h.Processes()
		i := slices.IndexFunc(processes, func(p harness.ProcInfo) bool { return p.Name == "sleep" })
		if i >= 0 {
			pid = processes[i].PID
		}
		return i >= 0
	})
	return pid
}

// A broker whose workers are all of no use still serves its client.
func TestABrokerAmongFakesServesItsClient(t *testing.T) {
	t.Parallel()
	args := []string{"--healthy-after=1m"}
	for i, fault := range []string{"answers-garbage", "answers-unknown-ids", "dies-in-an-answer"} {
		args = append(args, "--"+supervised[i].flag+"="+fake(t, fault))
	}
	tr := startShort(t, args...)
	stop := tr.traffic()
	tr.awaitWorker("settings", "is exhausted", func(w brokerapi.Worker) bool { return w.State == brokerapi.StateExhausted })
	stop()
	tr.awaitAll()
	answer := tr.call("settings/get-cluster-id", "")
	require.NotNil(t, answer.Error)
	require.Equal(t, "node-settings not available", answer.Error.Message)
	tr.unchanged("scanner", "errors")
	tr.shutDown()
}
