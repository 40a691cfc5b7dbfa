// SPDX-License-Identifier: Apache-2.0

package nodeinfo

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/services/nodeinfo/hardware"
)

// collect runs a collector in a bubble; the test ends it.
func collect(t *testing.T, m *fakeMachine, test func(c *collector)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := newCollector(m)
		c.prepare(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.run(ctx)
		}()
		test(c)
		cancel()
		<-ended
	})
}

// pass lets time go by, and a moment more for what happens at its end.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (m *fakeMachine) counts() (looks, samples int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.looked), len(m.sampled)
}

func TestSamplesComeEverySecondWhileSomebodyAsks(t *testing.T) {
	m := desk()
	collect(t, m, func(c *collector) {
		for range 120 {
			pass(time.Second)
			c.asked()
		}
		_, samples := m.counts()
		require.Equal(t, 1+120, samples)
	})
}

func TestSamplesAreRarerWhileNobodyFollowsThem(t *testing.T) {
	m := desk()
	collect(t, m, func(c *collector) {
		pass(askedFor)
		_, atRest := m.counts()
		pass(100 * time.Second)
		_, samples := m.counts()
		require.InDelta(t, 20, samples-atRest, 1)

		// The first request has the last sample, with its age; a new one follows at once.
		pass(2500 * time.Millisecond)
		before := c.newest()
		_, rested := m.counts()
		c.asked()
		c.asked()
		require.Same(t, before, c.newest())
		synctest.Wait()
		_, woken := m.counts()
		require.Equal(t, 1, woken-rested)
		require.Less(t, c.newest().age(time.Now()), time.Second)
		for range 10 {
			pass(time.Second)
			c.asked()
		}
		_, awake := m.counts()
		require.Equal(t, 10, awake-woken)
	})
}

// Nodes look at each other from time to time; nobody follows the load then.
func TestASingleRequestEndsNoRest(t *testing.T) {
	m := desk()
	collect(t, m, func(c *collector) {
		pass(askedFor)
		_, before := m.counts()
		for range 10 {
			c.asked()
			pass(10 * time.Second)
		}
		_, after := m.counts()
		require.InDelta(t, 20, after-before, 1)
	})
}

func TestRequestsCauseNoMoreThanOneSampleASecond(t *testing.T) {
	m := desk()
	collect(t, m, func(c *collector) {
		pass(askedFor + 10*time.Second)
		for range 1000 {
			c.asked()
			pass(10 * time.Millisecond)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		for i := 1; i < len(m.sampled); i++ {
			require.GreaterOrEqual(t, m.sampled[i].Sub(m.sampled[i-1]), sampleEvery)
		}
	})
}

// TestAdaptersAreLookedForAgain: see NI-34.
func TestAdaptersAreLookedForAgain(t *testing.T) {
	m := desk()
	m.adapters = nil
	collect(t, m, func(c *collector) {
		for range 35 {
			pass(time.Second)
			c.asked()
		}
		looks, _ := m.counts()
		require.Equal(t, 1+3, looks, "every 10 s while there is none")
		m.set(func() { m.adapters = []hardware.Adapter{{Key: "a", Name: "A"}} })
		pass(10 * time.Second)
		require.Len(t, c.newest().gpus, 1)
		looks, _ = m.counts()
		for range 125 {
			pass(time.Second)
			c.asked()
		}
		later, _ := m.counts()
		require.Equal(t, 2, later-looks, "every 60 s else")

		m.set(func() { m.load.Changed, m.adapters = true, append(m.adapters, hardware.Adapter{Key: "b", Name: "B"}) })
		pass(idleEvery)
		require.Len(t, c.newest().gpus, 2, "at once when a driver came")
	})
}

func TestAHardwareThatHangsMakesFiguresOldAndNothingElse(t *testing.T) {
	m := desk()
	collect(t, m, func(c *collector) {
		r := newRoute(nodeID, c)
		hang := make(chan struct{})
		m.set(func() { m.hang = hang })
		pass(20 * time.Second)
		info := r.info(time.Now())
		require.True(t, info.TelemetryValid)
		require.GreaterOrEqual(t, info.AgeMillis, int64(19_000))
		close(hang)
		m.set(func() { m.hang = nil })
		pass(time.Second)
		require.Less(t, r.info(time.Now()).AgeMillis, int64(2000))
	})
}
