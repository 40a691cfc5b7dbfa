// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/shared/workload"
)

func keys(list []Candidate) []string {
	found := []string{}
	for _, c := range list {
		found = append(found, c.Key.OriginatedFrom+"/"+c.Key.ID)
	}
	return found
}

func TestLostNodeFailsItsJobsExceptOurs(t *testing.T) {
	for _, tt := range []struct {
		origin, on, state string
		lost              bool
	}{
		{peer, "", "queued", true},
		{peer, third, "running", true},
		{peer, peer, "running", true},
		{third, peer, "running", true}, // placed on the lost node
		{third, third, "running", false},
		{self, peer, "running", false}, // DEC-26: our own, its proxy tells
		{peer, self, "running", false}, // DEC-90: it executes here and fell silent only
		{peer, "", "completed", false},
		{peer, "", "paused", true}, // unknown is not terminal
	} {
		x := New(Config{NodeID: self})
		put(t, x, Accepted, FromManager, job(origin(tt.origin), on(tt.on), state(tt.state)))
		if got := len(x.Lost(peer)) == 1; got != tt.lost {
			t.Errorf("%+v: lost %t", tt, got)
		}
		require.Empty(t, x.Lost(self))
	}
}

func TestInferredFailureKeepsEverythingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wall := &clock{step: -30 * time.Hour}
		x := New(Config{NodeID: self, Wall: wall.now})
		raw := amend(job(origin(peer), state("running"), on(third), seq(4)), replacement{"later", encode([]int{1})})
		put(t, x, Accepted, FromManager, raw)
		c, ok := x.Infer(x.Lost(peer)[0], OfflineText("desk"))
		require.True(t, ok)
		require.True(t, c.Terminal)
		require.Equal(t, string(amend(raw,
			replacement{"state", encode("failed")},
			replacement{"completedAt", encode(wall.now().UnixMilli())},
			replacement{"error", encode("node desk went offline")})), string(c.Info))
		require.Equal(t, "node desk stopped reporting this workload", SilentText("desk"))
		require.Empty(t, x.History()) // a guess is never kept (BR-59)

		_, again := x.Infer(Candidate{Key: c.Key, still: func(*record) bool { return true }}, "x")
		require.False(t, again)
		put(t, x, Accepted, FromManager, raw) // and it yields to the origin
	})
}

func TestSilenceFailsForeignJobsAfterFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := New(Config{NodeID: self})
		put(t, x, Accepted, FromManager, job())                                                 // ours
		put(t, x, Accepted, FromManager, job(origin(peer), id("here"), on(self), created(1)))   // executes here
		put(t, x, Accepted, FromManager, job(origin(peer), id("there"), on(third), created(2))) // elsewhere
		put(t, x, Accepted, FromManager, job(origin(peer), id("done"), state("completed")))
		put(t, x, Accepted, FromManager, job(origin(peer), id("twice")))
		put(t, x, Accepted, FromManager, job(origin(peer), id("twice"), run("r2")))
		put(t, x, Accepted, FromManager, job(origin(peer), id("once"), created(3)))
		put(t, x, Accepted, FromManager, job(origin(peer), id("once"), run("r2"), state("failed")))
		await(5*time.Minute - 1)
		require.Empty(t, x.Silent())
		await(1)
		require.Equal(t, []string{"peer-uuid/here", "peer-uuid/there", "peer-uuid/once"}, keys(x.Silent()))
	})
}

func TestSightingOrRemovalCancelsAGuess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := New(Config{NodeID: self})
		put(t, x, Accepted, FromManager, job(origin(peer), id("seen")))
		put(t, x, Accepted, FromManager, job(origin(peer), id("removed")))
		put(t, x, Accepted, FromManager, job(origin(peer), id("silent")))
		await(5 * time.Minute)
		found := x.Silent()
		require.Len(t, found, 3)
		put(t, x, Rejected, FromManager, job(origin(peer), id("seen")))
		x.Remove(workload.Pair{OriginatedFrom: peer, ID: "removed"})
		for _, c := range found {
			_, ok := x.Infer(c, "x")
			require.Equal(t, c.Key.ID == "silent", ok, c.Key.ID)
		}
		require.Equal(t, []string{"peer-uuid/ollama/r/seen=queued", "peer-uuid/ollama/r/silent=failed"}, shown(t, x))
	})
}

func TestAStepOfTheWallClockFailsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wall := new(clock)
		x := New(Config{NodeID: self, Wall: wall.now})
		put(t, x, Accepted, FromManager, job(origin(peer)))
		wall.step = 400 * 24 * time.Hour
		require.Empty(t, x.Silent())
		wall.step = -400 * 24 * time.Hour
		await(5 * time.Minute)
		require.Len(t, x.Silent(), 1) // and hides nothing
	})
}

func TestEndOfAProducerIsOneEventAfterItsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := New(Config{NodeID: self})
		put(t, x, Accepted, FromProxy(1), job(id("old"), state("running"), seq(3), created(1)))
		put(t, x, Accepted, FromProxy(1), job(id("plain"), run(""), created(2))) // a producer that does not count
		put(t, x, Accepted, FromProxy(1), job(id("done"), state("completed"), seq(3)))
		put(t, x, Accepted, FromProxy(2), job(id("new"), run("r2"), seq(1)))
		put(t, x, Accepted, FromManager, job(id("ingress"), run("")))
		found := x.Of(FromProxy(1))
		require.Equal(t, []string{"self-uuid/old", "self-uuid/plain"}, keys(found))
		for i, want := range []int64{4, 1} {
			c, ok := x.End(found[i], ProxyExitedText)
			require.True(t, ok)
			got := info(t, c.Info)
			require.Equal(t, "failed", got.State)
			require.Equal(t, "proxy exited", *got.Error)
			require.Equal(t, want, got.Seq)
			require.Equal(t, time.Now().UnixMilli(), *got.CompletedMillis)
		}
		require.Empty(t, x.Of(FromProxy(1)))
		put(t, x, Rejected, FromProxy(1), job(id("old"), state("running"), seq(5), created(1))) // it is authoritative
		require.Len(t, x.History(), 3)
	})
}

// TestSweepRunsOnlyWhileThereIsSomethingToWatch counts time: in a bubble without
// timers the wait for ctx would be a deadlock if nothing else could end it.
func TestSweepRunsOnlyWhileThereIsSomethingToWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := New(Config{NodeID: self})
		ctx, cancel := context.WithCancel(t.Context())
		var failed []string
		var at []time.Duration
		begin := time.Now()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			x.WatchSilence(ctx, func(c Candidate) {
				if _, ok := x.Infer(c, "silent"); ok {
					failed, at = append(failed, c.Key.ID), append(at, time.Since(begin))
				}
			})
		}()
		put(t, x, Accepted, FromProxy(1), job())
		synctest.Wait()
		await(time.Hour)
		put(t, x, Accepted, FromManager, job(origin(peer), id("a")))
		await(90 * time.Second)
		put(t, x, Accepted, FromManager, job(origin(peer), id("b")))
		await(time.Hour)
		put(t, x, Accepted, FromManager, job(origin(peer), id("c")))
		await(time.Hour)
		cancel()
		<-ended
		require.Equal(t, []string{"a", "b", "c"}, failed)
		require.Equal(t, []time.Duration{65 * time.Minute, 67 * time.Minute, 2*time.Hour + 90*time.Second + 5*time.Minute}, at)
	})
}
