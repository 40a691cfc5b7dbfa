// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/tests/harness"
)

// jobLog keeps what a subscribed client is told of jobs. It belongs to the test's goroutine.
type jobLog struct {
	c      *harness.Client
	seen   int                 // notifications that are in here
	states map[string][]string // by origin, engine, run, id and model; a repeated state is in it again
}

func followJobs(c *harness.Client) *jobLog {
	c.MustCall("workloads:subscribe", nil, nil)
	return &jobLog{c: c, states: map[string][]string{}}
}

// take reads what has come since.
func (l *jobLog) take(t *testing.T) {
	t.Helper()
	list := l.c.Notifications("workloads:upsert")
	for _, n := range list[l.seen:] {
		var event struct {
			WorkloadInfo struct{ ID, Engine, RunID, OriginatedFrom, Model, State string }
		}
		require.NoError(t, json.Unmarshal(n.Params, &event), "%s", n.Params)
		i := event.WorkloadInfo
		key := strings.Join([]string{i.OriginatedFrom, i.Engine, i.RunID, i.ID, i.Model}, " ")
		l.states[key] = append(l.states[key], i.State)
	}
	l.seen = len(list)
}

// ofModel returns the states of the one job that asked for a model, each once.
func (l *jobLog) ofModel(t *testing.T, model string) string {
	t.Helper()
	l.take(t)
	var found []string
	for key, states := range l.states {
		if strings.HasSuffix(key, " "+model) {
			require.Nil(t, found, "two jobs for %s", model)
			found = slices.Compact(slices.Clone(states))
		}
	}
	return strings.Join(found, " ")
}

// terminal are the states in which a job has ended.
var terminal = []string{"completed", "failed", "cancelled"}

// awaitEnded waits until that many jobs are known and all have ended, proves that each ended exactly once and that
// nothing came behind that, and returns how many ended in each state.
func (l *jobLog) awaitEnded(t *testing.T, count int) map[string]int {
	t.Helper()
	harness.Eventually(t, inferenceWithin, fmt.Sprintf("end of %d jobs", count), func() bool {
		l.take(t)
		ended := 0
		for _, states := range l.states {
			if slices.ContainsFunc(states, isTerminal) {
				ended++
			}
		}
		return len(l.states) >= count && ended == len(l.states)
	})
	return l.requireOneEndEach(t, count)
}

// requireOneEndEach proves that of each job: nothing came before and nothing behind its one end.
func (l *jobLog) requireOneEndEach(t *testing.T, count int) map[string]int {
	t.Helper()
	l.take(t)
	require.Len(t, l.states, count)
	ends := map[string]int{}
	for key, states := range l.states {
		require.Equal(t, len(states)-1, slices.IndexFunc(states, isTerminal), "%s: %v", key, states)
		ends[states[len(states)-1]]++
	}
	return ends
}

func isTerminal(state string) bool { return slices.Contains(terminal, state) }

// requireIndex proves that the index has these many jobs of each state and no other.
func requireIndex(t *testing.T, c *harness.Client, want map[string]int) {
	t.Helper()
	got := map[string]int{}
	for _, state := range jobStates(t, c) {
		got[state]++
	}
	require.Equal(t, want, got)
}
