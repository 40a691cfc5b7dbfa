// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSchedulerIsToldOfAllOpenJobs(t *testing.T) {
	x := New(Config{NodeID: self})
	put(t, x, Accepted, FromManager, job(id("b"), created(2)))
	put(t, x, Accepted, FromManager, job(id("a"), created(2), origin(peer), state("running"), on(self)))
	put(t, x, Accepted, FromManager, job(id("z"), created(1), state("paused")))
	put(t, x, Accepted, FromManager, job(id("done"), state("cancelled")))
	var ids []string
	for _, c := range x.Open() {
		require.False(t, c.Terminal)
		ids = append(ids, c.Key.ID)
	}
	require.Equal(t, []string{"z", "a", "b"}, ids) // by time, origin, id
}

func TestWorkloadManagerIsToldOfOwnJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := New(Config{NodeID: self})
		await(time.Hour)
		now := time.Now()
		for n, raw := range [][]byte{
			job(id("queued")), job(id("running"), state("running")), job(id("paused"), state("paused")),
			job(id("peers"), origin(peer)),
			job(id("completed"), state("completed"), completed(now)),
			job(id("failed"), state("failed"), completed(now.Add(-59499*time.Millisecond))),
			job(id("cancelled"), state("cancelled")),                                        // no completedAt: when it was accepted
			job(id("old"), state("completed"), completed(now.Add(-59500*time.Millisecond))), // a minute when it is asked for
		} {
			put(t, x, Accepted, FromProxy(1), raw)
			require.Less(t, n, 8)
		}
		put(t, x, Accepted, FromManager, job(id("ingress")))
		await(500 * time.Millisecond)
		got := map[string]string{}
		for _, r := range x.Own() {
			require.Equal(t, string(r.Info), string(r.Event.Info))
			got[r.Key.ID] = r.Method
			if age := r.Event.IngressAgeMillis; age != nil {
				got[r.Key.ID] += " " + strconv.FormatInt(*age, 10)
			}
		}
		require.Equal(t, map[string]string{
			"queued": "workload:submitted", "running": "workload:started", "ingress": "workload:submitted 500",
			"completed": "workload:completed", "failed": "workload:errored", "cancelled": "workload:errored",
		}, got)
		await(time.Minute)
		require.Len(t, x.Own(), 3) // the open ones
	})
}

func TestAStepBackOfTheWallClockRevivesNoReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wall := new(clock)
		x := New(Config{NodeID: self, Wall: wall.now})
		put(t, x, Accepted, FromProxy(1), job(state("completed"), completed(time.Now())))
		await(2 * time.Minute)
		wall.step = -time.Hour
		require.Empty(t, x.Own())
	})
}

func TestInferredEndIsNotReplayed(t *testing.T) {
	x := New(Config{NodeID: self})
	put(t, x, Accepted, FromManager, job(origin(peer)))
	_, ok := x.Infer(x.Lost(peer)[0], "x")
	require.True(t, ok)
	require.Empty(t, x.Own())
	require.Empty(t, x.Open())
}

func TestListThatDoesNotFitKeepsOpenThenNewest(t *testing.T) {
	x := New(Config{NodeID: self})
	at := time.Now()
	put(t, x, Accepted, FromManager, job(id("1"), state("completed"), completed(at), created(9)))
	put(t, x, Accepted, FromManager, job(id("2"), state("completed"), completed(at.Add(time.Second)), created(8)))
	put(t, x, Accepted, FromManager, job(id("3"), created(7)))
	put(t, x, Accepted, FromManager, job(id("4"), created(6)))
	all := x.All(1 << 20)
	require.Len(t, all, 4)
	ids := func(maxBytes int) string {
		s := ""
		for _, raw := range x.All(maxBytes) {
			s += info(t, raw).ID
		}
		return s
	}
	total := 0
	for _, raw := range all {
		total += len(raw) + 1
	}
	require.Equal(t, "4321", ids(total))
	require.Equal(t, "432", ids(total-1))
	require.Equal(t, "43", ids(2*(len(all[0])+1)))
	require.Equal(t, "3", ids(len(all[0])+1))
	require.NotNil(t, x.All(0))
	require.Empty(t, x.All(0))
}
