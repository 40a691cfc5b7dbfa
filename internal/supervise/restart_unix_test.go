// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package supervise

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func kill(t *testing.T, p *Process, sig syscall.Signal) {
	t.Helper()
	require.NoError(t, syscall.Kill(p.PID, sig))
}

func TestCrashLoopUsesUpItsBudget(t *testing.T) {
	w := start(t, policy(), "exit 1")
	w.await("exhausted")
	w.stop(never) // nothing is left to stop, but the call is legal
	require.Equal(t, []string{
		"attached 1", "ended 1, exit status 1",
		"attached 2", "ended 2, exit status 1",
		"attached 3", "ended 3, exit status 1",
		"exhausted",
	}, w.all())
	status := w.Status()
	require.NotZero(t, status.Since)
	status.Since = time.Time{}
	require.Equal(t, Status{State: StateExhausted, Generation: 3, LastEnd: "exit status 1"}, status)
	require.Contains(t, w.log.String(), `level=ERROR msg="restart budget used up, stays down" worker=demo restarts=2`)
}

func TestCleanExitIsUnexpectedToo(t *testing.T) {
	p := policy()
	p.Budget = 0
	w := start(t, p, "exit 0")
	w.await("exhausted")
	require.Equal(t, []string{"attached 1", "ended 1, exit status 0", "exhausted"}, w.all())
}

func TestProgramThatCannotBeStartedCountsAsARestart(t *testing.T) {
	w := start(t, policy(), "exit 1", "missing", "exit 2")
	w.await("exhausted")
	require.Equal(t, []string{
		"attached 1", "ended 1, exit status 1",
		"ended nothing, could not be started: fork/exec /nonexistent/program: no such file or directory",
		"attached 2", "ended 2, exit status 2",
		"exhausted",
	}, w.all())
}

func TestFailureOfTheFirstStartIsTheCallers(t *testing.T) {
	w := watch(t, policy(), "missing")
	require.ErrorContains(t, w.Start(), "no such file")
	w.stop(never)
	require.Empty(t, w.all())
	require.Equal(t, StateStopped, w.Status().State)
}

func TestHealthyProcessStartsANewStreak(t *testing.T) {
	p := policy()
	p.Budget, p.HealthyAfter = 1, time.Millisecond
	w := start(t, p, "ponger")
	for generation := range 3 {
		process := w.next()
		w.await("out hello")
		if generation > 0 {
			awaitCount(w, "healthy", generation)
		}
		kill(t, process, syscall.SIGKILL)
	}
	w.next() // the budget of one restart has sufficed for three
	awaitCount(w, "healthy", 3)
	w.stop(never)
	require.NotContains(t, w.all(), "exhausted")
}

// awaitCount waits until that event has come n times.
func awaitCount(w *watched, event string, n int) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		count := 0
		for _, e := range w.all() {
			if e == event {
				count++
			}
		}
		return count >= n
	}, patience, time.Millisecond, "%d times %q", n, event)
}

func TestFirstIncarnationIsNotReportedHealthy(t *testing.T) {
	p := policy()
	p.Budget, p.HealthyAfter, p.PingEvery = 0, time.Millisecond, 20*time.Millisecond
	p.HelloTicks, p.PingMisses = 1000, 1000 // a busy machine is slow
	w := start(t, p, "ponger")
	process := w.next()
	w.await("out pong 2") // well after HealthyAfter
	kill(t, process, syscall.SIGKILL)
	w.await("exhausted")
	require.NotContains(t, w.all(), "healthy")
}

func TestStatusTellsWhereAChildIs(t *testing.T) {
	p := policy()
	p.FirstDelay, p.MaxDelay = never, never
	w := watch(t, p, "obey")
	require.Equal(t, StateStopped, w.Status().State)
	require.NoError(t, w.Start())
	process := w.next()
	w.await("out up")
	status := w.Status()
	require.Equal(t, StateRunning, status.State)
	require.Equal(t, process.PID, status.PID)
	require.Equal(t, 1, status.Generation)

	kill(t, process, syscall.SIGKILL)
	w.await("ended 1, ")
	status = w.Status()
	status.Since = time.Time{}
	require.Equal(t, Status{State: StateRestarting, Generation: 1, LastEnd: "signal: killed"}, status)
	w.stop(never)
	status = w.Status()
	status.Since = time.Time{}
	require.Equal(t, Status{State: StateStopped, Generation: 1, LastEnd: "signal: killed"}, status)
}

func TestHungProcessIsKilledAndRestarted(t *testing.T) {
	p := policy()
	p.PingEvery = 100 * time.Millisecond
	w := start(t, p, "ponger")
	process := w.next()
	w.await("out hello")
	kill(t, process, syscall.SIGSTOP)
	w.await("ended 1, hung: 3 pings unanswered")
	w.next()
	awaitGone(t, process.PID)
}

func TestProcessThatNeverSaysHelloIsKilled(t *testing.T) {
	p := policy()
	p.PingEvery, p.Budget = time.Millisecond, 0
	w := start(t, p, "obey")
	w.await("ended 1, hung: it never said hello")
	w.await("exhausted")
}

func TestProcessThatClosesItsLinkIsReplaced(t *testing.T) {
	for _, stream := range []string{"stdout", "stdin"} {
		t.Run(stream, func(t *testing.T) {
			p := policy()
			p.Drain = 10 * time.Millisecond
			p.StopGrace, p.TermGrace = p.Drain, p.Drain // it is asked to end before it is made to
			w := start(t, p, "hangup "+stream, "ponger")
			process := w.next()
			w.await("out up")
			if stream == "stdin" { // noticed by what is written to it
				require.Eventually(t, func() bool {
					fmt.Fprintln(process.Transport(), "x")
					return isClosed(process.deaf)
				}, patience, time.Millisecond)
			}
			w.await("ended 1, closed its link")
			w.next()
			awaitGone(t, process.PID)
		})
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func TestStandardStreamsBlockInTheChild(t *testing.T) {
	// Programs that are not ours do not expect anything else.
	p := policy()
	p.Budget = 0
	w := start(t, p, "modes")
	w.await("exhausted")
	for _, e := range w.all() {
		require.False(t, strings.HasSuffix(e, "true"), e)
	}
	require.Contains(t, w.all(), "out 2 non-blocking: false")
}
