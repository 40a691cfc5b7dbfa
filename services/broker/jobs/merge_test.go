// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/shared/workload"
)

// version is one state of a job; the zero value of a member is what most have.
type version struct {
	state    string
	created  int64
	seq      int64
	on       string
	inferred bool
}

func (v version) fields() fields {
	return fields{state: v.state, rank: workload.Rank(v.state), createdAt: v.created, seq: v.seq, scheduledOn: v.on}
}

func TestMergeRules(t *testing.T) {
	const queued, running, completed, failed, cancelled = "queued", "running", "completed", "failed", "cancelled"
	for _, tt := range []struct {
		rule    string
		cur, in version
		accept  bool
	}{
		{"3: a newer generation replaces a terminal", version{state: completed, created: 1, seq: 9}, version{state: queued, created: 2, seq: 1}, true},
		{"3: an older one is rejected before its rank counts", version{state: queued, created: 2}, version{state: completed, created: 1}, false},
		{"3: an older one is rejected before its seq counts", version{state: queued, created: 2, seq: 1}, version{state: running, created: 1, seq: 9}, false},
		{"3: a newer guess counts too", version{state: completed, created: 1}, version{state: failed, created: 2, inferred: true}, true},
		{"3: an older event does not replace a guess", version{state: failed, created: 2, inferred: true}, version{state: running, created: 1}, false},

		{"4: the origin replaces a guess", version{state: failed, inferred: true}, version{state: running}, true},
		{"4: with the seq the guess was made from", version{state: failed, seq: 3, inferred: true}, version{state: running, seq: 3}, true},
		{"4: with a higher one", version{state: failed, seq: 3, inferred: true}, version{state: completed, seq: 4}, true},
		{"4: not with a lower one", version{state: failed, seq: 3, inferred: true}, version{state: running, seq: 2}, false},
		{"4: without seq on one side", version{state: failed, seq: 3, inferred: true}, version{state: queued}, true},
		{"4: without seq on the other", version{state: failed, inferred: true}, version{state: queued, seq: 1}, true},

		{"5: a guess replaces an open record", version{state: running, seq: 3}, version{state: failed, seq: 3, inferred: true}, true},
		{"5: and one of unknown state", version{state: "paused"}, version{state: failed, inferred: true}, true},
		{"5: never a terminal", version{state: cancelled}, version{state: failed, inferred: true}, false},

		{"6: a higher seq replaces", version{state: queued, seq: 1}, version{state: running, seq: 2}, true},
		{"6: also when the state ranks lower", version{state: running, seq: 2}, version{state: queued, seq: 3}, true},
		{"6: also when nothing else changed", version{state: queued, seq: 2}, version{state: queued, seq: 3}, true},
		{"6: an equal one is rejected", version{state: queued, seq: 2}, version{state: running, seq: 2}, false},
		{"6: a lower one is rejected", version{state: queued, seq: 2}, version{state: completed, seq: 1}, false},
		{"6: a terminal stays", version{state: completed, seq: 2}, version{state: failed, seq: 3}, false},
		{"6: against placement too", version{state: completed, seq: 2, on: "a"}, version{state: completed, seq: 3, on: "b"}, false},

		{"7: a higher rank replaces", version{state: queued}, version{state: running}, true},
		{"7: seq on one side does not count", version{state: queued, seq: 5}, version{state: running}, true},
		{"7: nor on the other", version{state: running}, version{state: queued, seq: 5}, false},
		{"7: a lower rank is rejected", version{state: running}, version{state: queued}, false},
		{"7: a terminal replaces", version{state: running}, version{state: cancelled}, true},
		{"7: an unknown state ranks lowest", version{state: queued}, version{state: "paused"}, false},
		{"7: and gives way", version{state: "paused"}, version{state: queued}, true},
		{"7: equal is rejected", version{state: running, on: "a"}, version{state: running, on: "a"}, false},
		{"7: equal with another placement is accepted", version{state: queued, on: "a"}, version{state: queued, on: "b"}, true},
		{"7: also without one", version{state: queued, on: "a"}, version{state: queued}, true},
		{"7: all terminals are equal", version{state: completed}, version{state: failed}, false},
		{"7: a second guess changes nothing", version{state: failed, inferred: true}, version{state: failed, inferred: true}, false},
		{"7: not even with a higher seq", version{state: failed, seq: 1, inferred: true}, version{state: failed, seq: 2, inferred: true}, false},
	} {
		cur := &record{fields: tt.cur.fields(), inferred: tt.cur.inferred}
		in := &Event{fields: tt.in.fields(), inferred: tt.in.inferred}
		if got := replaces(cur, in); got != tt.accept {
			t.Errorf("%s: %+v, then %+v: replaced %t", tt.rule, tt.cur, tt.in, got)
		}
	}
}

func TestNewIdentityIsAcceptedWhateverItsState(t *testing.T) {
	x := New(Config{NodeID: self})
	for _, s := range []string{"queued", "running", "completed", "failed", "cancelled", "paused", ""} {
		put(t, x, Accepted, FromManager, job(id("of "+s), state(s)))
	}
	require.Len(t, shown(t, x), 7)
}

func TestIdentityIsAllFourParts(t *testing.T) {
	x := New(Config{NodeID: self})
	put(t, x, Accepted, FromManager, job())
	put(t, x, Accepted, FromManager, job(id("2")))
	put(t, x, Accepted, FromManager, job(engine("lmstudio")))
	put(t, x, Accepted, FromManager, job(run("r2")))
	put(t, x, Accepted, FromManager, job(origin(peer)))
	put(t, x, Rejected, FromManager, job())
	require.Len(t, shown(t, x), 5)
}

func TestRemovalTakesAllEnginesAndRunsOfAPair(t *testing.T) {
	x := New(Config{NodeID: self})
	put(t, x, Accepted, FromManager, job())
	put(t, x, Accepted, FromManager, job(engine("lmstudio"), state("completed")))
	put(t, x, Accepted, FromManager, job(run("r2")))
	put(t, x, Accepted, FromManager, job(id("2")))
	put(t, x, Accepted, FromManager, job(origin(peer)))
	require.Equal(t, 3, x.Remove(workload.Pair{OriginatedFrom: self, ID: "1"}))
	require.Equal(t, []string{"peer-uuid/ollama/r/1=queued", "self-uuid/ollama/r/2=queued"}, shown(t, x))
	require.Zero(t, x.Remove(workload.Pair{OriginatedFrom: self, ID: "1"}))
	require.Zero(t, x.Remove(workload.Pair{ID: "1"})) // no origin, no record
	put(t, x, Accepted, FromManager, job())           // and it may come back
}

func TestOnlyTheOriginsPresentGenerationCountsAsSighting(t *testing.T) {
	for _, tt := range []struct {
		name   string
		event  func(t *testing.T, x *Index)
		sights bool
	}{
		{"a repeat that is rejected", func(t *testing.T, x *Index) {
			put(t, x, Rejected, FromManager, job(origin(peer), state("running"), created(2000)))
		}, true},
		{"a change", func(t *testing.T, x *Index) {
			put(t, x, Accepted, FromManager, job(origin(peer), state("running"), created(2000), on(third)))
		}, true},
		{"an older generation", func(t *testing.T, x *Index) {
			put(t, x, Rejected, FromManager, job(origin(peer), state("running"), created(1999)))
		}, false},
		{"another job", func(t *testing.T, x *Index) {
			put(t, x, Accepted, FromManager, job(origin(peer), id("2"), created(2000)))
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := New(Config{NodeID: self})
				put(t, x, Accepted, FromManager, job(origin(peer), state("running"), created(2000)))
				await(4 * time.Minute)
				tt.event(t, x)
				await(time.Minute)
				require.Equal(t, !tt.sights, len(x.Silent()) == 1)
			})
		})
	}
}

// await lets time pass in a bubble.
func await(d time.Duration) { <-time.After(d) }

func TestAGuessIsNoSighting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := New(Config{NodeID: self})
		put(t, x, Accepted, FromManager, job(origin(peer), state("running")))
		await(4 * time.Minute)
		x.mu.Lock()
		before := x.records[workload.KeyOf(info(t, job(origin(peer))))].lastSeen
		x.mu.Unlock()
		_, ok := x.Infer(x.Lost(peer)[0], "gone")
		require.True(t, ok)
		x.mu.Lock()
		defer x.mu.Unlock()
		r := x.records[workload.KeyOf(info(t, job(origin(peer))))]
		require.Equal(t, before, r.lastSeen)
		require.Equal(t, time.Now(), r.updated)
	})
}
