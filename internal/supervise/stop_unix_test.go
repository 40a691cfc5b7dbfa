// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package supervise

import (
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// requireReaped requires that nothing with the process's id is left.
func requireReaped(t *testing.T, p *Process) {
	t.Helper()
	require.ErrorIs(t, syscall.Kill(p.PID, 0), syscall.ESRCH)
}

func TestStopEndsTheInput(t *testing.T) {
	w := start(t, policy(), "obey")
	p := w.next()
	w.await("out up")
	w.stop(never)
	requireReaped(t, p)
	require.Equal(t, []string{"attached 1", "out up", "out bye"}, w.all())
	require.Empty(t, w.log.String())
	status := w.Status()
	require.Equal(t, StateStopped, status.State)
	require.Zero(t, status.PID)
	require.Empty(t, status.LastEnd)
}

func TestStopSendsASignalWhenTheEndOfInputIsIgnored(t *testing.T) {
	p := policy()
	p.StopGrace = 10 * time.Millisecond
	w := start(t, p, "deaf")
	w.await("out up")
	w.stop(never)
	requireReaped(t, w.next())
	require.Equal(t, []string{"attached 1", "out up", "out terminated"}, w.all())
	require.Contains(t, w.log.String(), "level=WARN msg=\"did not end with its input, terminating it\" worker=demo pid=")
	require.NotContains(t, w.log.String(), "killing")
}

func TestStopKillsWhatIgnoresEverythingElse(t *testing.T) {
	p := policy()
	p.StopGrace, p.TermGrace = 10*time.Millisecond, 10*time.Millisecond
	w := start(t, p, "stubborn")
	w.await("out up")
	w.stop(never)
	requireReaped(t, w.next())
	require.Equal(t, []string{"attached 1", "out up"}, w.all())
	require.Contains(t, w.log.String(), "did not end on the signal, killing it")
}

func TestDeadlineClipsTheGrace(t *testing.T) {
	for name, grace := range map[string]time.Duration{"soon": 10 * time.Millisecond, "over": -time.Hour} {
		w := start(t, policy(), "deaf") // has minutes of StopGrace
		w.await("out up")
		w.stop(grace)
		require.Contains(t, w.all(), "out terminated", name)
	}
}

func TestStopReachesAStoppedProcess(t *testing.T) {
	p := policy()
	p.StopGrace, p.TermGrace = time.Millisecond, time.Millisecond
	w := start(t, p, "obey")
	process := w.next()
	w.await("out up")
	kill(t, process, syscall.SIGSTOP)
	w.stop(never)
	requireReaped(t, process)
}

func TestStopWhileWaitingForARestartStartsNothing(t *testing.T) {
	p := policy()
	p.FirstDelay, p.MaxDelay = never, never
	w := start(t, p, "exit 1", "obey")
	w.await("ended 1, exit status 1")
	w.stop(never)
	require.Equal(t, []string{"attached 1", "ended 1, exit status 1"}, w.all())
	require.Equal(t, StateStopped, w.Status().State)
}

func TestStopThatMeetsTheEndOfAPauseWins(t *testing.T) {
	w := watch(t, policy(), "obey")
	w.Stop(time.Now())
	for range 100 { // both are due; either may be seen first
		require.False(t, w.pause(0))
	}
}

func TestStopMayBeCalledByManyAndAgain(t *testing.T) {
	w := start(t, policy(), "obey")
	p := w.next()
	w.await("out up")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			w.Stop(time.Now().Add(never))
			requireGone(t, p)
		})
	}
	wg.Wait()
	w.stop(never)
	require.Equal(t, []string{"attached 1", "out up", "out bye"}, w.all())
}

// requireGone is requireReaped for a goroutine that is not the test's.
func requireGone(t *testing.T, p *Process) {
	if err := syscall.Kill(p.PID, 0); err != syscall.ESRCH {
		t.Errorf("process %d after Stop: %v; want %v", p.PID, err, syscall.ESRCH)
	}
}

func TestFirstDeadlineCounts(t *testing.T) {
	w := start(t, policy(), "deaf")
	w.await("out up")
	w.stop(10 * time.Millisecond)
	w.stop(never) // must not wait for another grace
	require.Equal(t, StateStopped, w.Status().State)
}

func TestStopBeforeStart(t *testing.T) {
	w := watch(t, policy(), "obey")
	w.stop(never)
	require.EqualError(t, w.Start(), "already stopped")
	require.Empty(t, w.all())
	w.stop(never)
}

func TestStopDuringStart(t *testing.T) {
	// Whichever comes first, nothing may be left and nobody may wait for ever.
	for range 20 {
		w := watch(t, policy(), "obey")
		var wg sync.WaitGroup
		wg.Go(func() { _ = w.Start() })
		w.stop(never)
		wg.Wait()
		require.NotContains(t, w.all(), "attached 2")
		for len(w.processes) > 0 {
			requireReaped(t, w.next())
		}
	}
}
