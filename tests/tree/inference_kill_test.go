// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/tests/engine"
	"nvpair/tests/harness"
)

// manyStreams is how many answers run while something is killed.
const manyStreams = 100

// holdsStreams makes an engine stop in the middle of each answer until that is cleared.
var holdsStreams = engine.Fault{Kind: engine.KindHang, At: engine.AtMidStream, After: 3, Path: "/v1/chat/completions"}

// startHeld starts a tree with streams that have all begun and go on when the engine's faults are cleared.
func startHeld(t *testing.T, count int) (*inference, []*stream) {
	t.Helper()
	n := startInference(t, engine.Config{})
	require.NoError(t, n.engine.Faults.Set(holdsStreams))
	n.engine.ResetWitness()
	streams := openStreams(t, n.http, 11434, count)
	n.awaitEngine("all streams run", func(r engine.Report) bool { return running(r) == count })
	return n, streams
}

// killed kills a worker and waits for its successor.
func (n *inference) killed(name string) {
	n.t.Helper()
	before := pidOf(n.t, n.c, name)
	require.Positive(n.t, before)
	require.NoError(n.t, syscall.Kill(before, syscall.SIGKILL))
	n.awaitSuccessor(name, before)
}

func (n *inference) awaitSuccessor(name string, before int) {
	n.t.Helper()
	harness.Eventually(n.t, inferenceWithin, "new "+name, func() bool {
		pid := pidOf(n.t, n.c, name)
		return pid != 0 && pid != before
	})
}

// Reservations cannot be seen from outside: nodes given by address are not ranked, so nothing is reserved there. What
// can be seen is that no job is left open, which is what the scheduler counts, and that the node serves as before.

func TestStreamsThroughAKilledProxyAreCutAndTheirJobsFail(t *testing.T) {
	t.Parallel()
	n, streams := startHeld(t, manyStreams)
	n.killed("nvpair-proxy")
	whole, cut := endings(streams)
	require.Equal(t, []int{0, manyStreams}, []int{whole, cut})
	require.Equal(t, map[string]int{"failed": manyStreams}, n.jobs.awaitEnded(t, manyStreams))
	requireIndex(t, n.c, map[string]int{"failed": manyStreams})
	n.awaitEngine("all clients have left", func(r engine.Report) bool { return running(r) == 0 })
	n.engine.Faults.Clear()
	awaitServed(t, n.http, 11434)
	require.Equal(t, map[string]int{"failed": manyStreams, "completed": 1}, n.jobs.awaitEnded(t, manyStreams+1))
}

func TestStreamsGoOnWhenTheSchedulerIsKilled(t *testing.T) {
	t.Parallel()
	n, streams := startHeld(t, manyStreams)
	n.killed("scheduler")
	n.engine.Faults.Clear()
	whole, cut := endings(streams)
	require.Equal(t, []int{manyStreams, 0}, []int{whole, cut})
	n.requireServed(11434)
	require.Equal(t, map[string]int{"completed": manyStreams + 1}, n.jobs.awaitEnded(t, manyStreams+1))
	requireIndex(t, n.c, map[string]int{"completed": manyStreams + 1})
}

func TestStreamsOfAKilledEngineAreCutAndTheirJobsFail(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	victim := startEngine(t, h, "127.0.0.1:11435", "--faults",
		`{"kind":"hang","at":"mid-stream","after":3,"path":"/v1/chat/completions"}`)
	n := startInferenceWith(t, h, nil)
	streams := openStreams(t, n.http, 11434, manyStreams)
	victim.Kill()
	whole, cut := endings(streams)
	require.Equal(t, []int{0, manyStreams}, []int{whole, cut})
	require.Equal(t, map[string]int{"failed": manyStreams}, n.jobs.awaitEnded(t, manyStreams))
	requireIndex(t, n.c, map[string]int{"failed": manyStreams})
	startEngine(t, h, "127.0.0.1:11435")
	n.awaitModel(11434)
	n.requireServed(11434)
	require.Equal(t, map[string]int{"failed": manyStreams, "completed": 1}, n.jobs.awaitEnded(t, manyStreams+1))
}

func TestAKilledBrokerTakesItsStreamsAlongAndItsSuccessorServes(t *testing.T) {
	t.Parallel()
	n, streams := startHeld(t, manyStreams)
	n.p.Kill()
	whole, cut := endings(streams)
	require.Equal(t, []int{0, manyStreams}, []int{whole, cut})
	n.awaitEngine("all clients have left", func(r engine.Report) bool { return running(r) == 0 })
	n.h.AwaitNone(endWithin)
	n.engine.Faults.Clear()

	next := startInferenceWith(t, n.h, n.engine)
	next.requireServed(11434)
	require.Equal(t, map[string]int{"completed": 1}, next.jobs.awaitEnded(t, 1))
	require.NotRegexp(t, "queued|running", strings.Join(jobStates(t, next.c), " "), "no job of the dead one is open")
}
