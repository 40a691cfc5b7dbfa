// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lan

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/tests/harness"
)

// signal sends a signal to each of these processes that still runs.
func signal(t *testing.T, processes []harness.ProcInfo, s syscall.Signal) {
	t.Helper()
	for _, p := range processes {
		if err := syscall.Kill(p.PID, s); !errors.Is(err, syscall.ESRCH) {
			require.NoError(t, err)
		}
	}
}

// The kernel of a machine whose processes stand still takes connections; that of one that sleeps does not.
func TestAMachineThatWakesFromSleepIsBackAtOnce(t *testing.T) {
	t.Parallel()
	bridge, nodes := three(t)
	sleeper := nodes[2]
	bridge.Cut(sleeper.Host)
	asleep := sleeper.Processes()
	signal(t, asleep, syscall.SIGSTOP)
	t.Cleanup(func() { signal(t, asleep, syscall.SIGCONT) }) // it would not end otherwise
	nodes[0].sees(evictWithin, "alpha", "beta")
	nodes[1].sees(evictWithin, "alpha", "beta")

	bridge.Heal(sleeper.Host)
	signal(t, asleep, syscall.SIGCONT)
	woken := time.Now()
	all := []string{"alpha", "beta", "gamma"}
	nodes[0].sees(appearWithin, all...)
	nodes[1].sees(appearWithin, all...)
	eventually(t, time.Minute, "two sweeps to pass", func() bool {
		for _, n := range nodes {
			require.Equal(t, all, n.names(), "%s has lost one that lives", n.Name)
		}
		return time.Since(woken) > 35*time.Second
	})
}
