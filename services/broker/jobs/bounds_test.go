// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/shared/workload"
)

// bare returns an event of that size without the cost of decoding one.
func bare(node, name, state string, bytes int) Event {
	return Event{source: FromManager, fields: fields{
		key: workload.Key{OriginatedFrom: node, ID: name}, state: state, rank: workload.Rank(state), createdAt: 1000,
		raw: make([]byte, bytes),
	}}
}

// fill puts n such events.
func fill(t *testing.T, x *Index, node, state string, n, bytes int) {
	t.Helper()
	for k := range n {
		require.Equal(t, Accepted, x.Put(bare(node, strconv.Itoa(k), state, bytes)))
	}
}

// audit requires that the accounts say what is there.
func audit(t *testing.T, x *Index) {
	t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	var own, remote, finished usage
	for key, r := range x.records {
		switch {
		case r.terminal():
			finished.add(r)
		case key.OriginatedFrom == self:
			own.add(r)
		default:
			remote.add(r)
		}
		require.True(t, slices.Contains(x.pairs[key.Pair()], r))
	}
	require.Equal(t, []usage{own, remote, finished}, []usage{x.own, x.remote, x.finished})
	pairs := 0
	for _, list := range x.pairs {
		require.NotEmpty(t, list)
		pairs += len(list)
	}
	require.Len(t, x.records, pairs)
}

func TestOpenRecordsAreBoundedAndPeersLeaveRoom(t *testing.T) {
	x := New(Config{NodeID: self})
	fill(t, x, peer, "queued", 8000, 10)
	put(t, x, Full, FromManager, job(origin(third)))
	require.Equal(t, Accepted, x.Put(bare(peer, "0", "running", 10))) // one that is in
	fill(t, x, self, "queued", 2000, 10)
	put(t, x, Full, FromProxy(1), job(id("more")))
	put(t, x, Accepted, FromProxy(1), job(id("more"), state("completed"))) // its end is taken
	require.Equal(t, Accepted, x.Put(bare(self, "7", "completed", 10)))
	put(t, x, Accepted, FromProxy(1), job(id("another"))) // there is room again
	put(t, x, Full, FromManager, job(origin(third)))      // for ours
	x.Remove(workload.Pair{OriginatedFrom: peer, ID: "1"})
	put(t, x, Accepted, FromManager, job(origin(third)))
	audit(t, x)
}

func TestGuessedEndIsNotReopenedBeyondTheBounds(t *testing.T) {
	x := New(Config{NodeID: self})
	put(t, x, Accepted, FromManager, job(origin(peer)))
	_, ok := x.Infer(x.Lost(peer)[0], "x")
	require.True(t, ok)
	fill(t, x, third, "queued", 8000, 10)
	put(t, x, Full, FromManager, job(origin(peer)))
	put(t, x, Accepted, FromManager, job(origin(peer), state("completed")))
	audit(t, x)
}

func TestOpenRecordsAreBoundedInBytes(t *testing.T) {
	const share = maxOpenBytes * 4 / 5
	x := New(Config{NodeID: self})
	fill(t, x, peer, "queued", share/maxRecordBytes, maxRecordBytes)
	rest := share - x.remote.bytes
	require.Equal(t, Full, x.Put(bare(third, "0", "queued", rest+1)))
	require.Equal(t, Accepted, x.Put(bare(third, "0", "queued", rest)))
	require.Equal(t, Full, x.Put(bare(third, "0", "running", rest+1)))     // may not grow
	require.Equal(t, Accepted, x.Put(bare(third, "0", "running", rest-1))) // may shrink
	require.Equal(t, Accepted, x.Put(bare(self, "0", "queued", maxRecordBytes)))
	audit(t, x)
}

func TestFinishedRecordsAreTheNewestOfSevenDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := New(Config{NodeID: self})
		begin := time.Now()
		ended := func(name string, after time.Duration) Event {
			e := bare(self, name, "completed", 10)
			e.completedAt = begin.Add(after).UnixMilli()
			e.raw = []byte(name)
			return e
		}
		for n := range 12_500 {
			require.Equal(t, Accepted, x.Put(ended(strconv.Itoa(n), time.Duration(n)*time.Second)))
		}
		require.Len(t, x.records, 12_500) // trimmed at the next flush
		require.Equal(t, Accepted, x.Put(ended("last", 24*time.Hour)))
		require.Len(t, x.records, 10_000) // or when a quarter more has come
		require.Equal(t, "2501", string(x.History()[0]))
		audit(t, x)

		await(7*24*time.Hour + 3000*time.Second)
		list := x.History()
		require.Equal(t, "3000", string(list[0])) // exactly 7 days
		require.Equal(t, "last", string(list[len(list)-1]))
		await(time.Millisecond)
		require.Equal(t, "3001", string(x.History()[0]))
		audit(t, x)
	})
}

func TestFinishedRecordsAreBoundedInBytes(t *testing.T) {
	x := New(Config{NodeID: self})
	fill(t, x, self, "failed", 2000, maxRecordBytes)
	require.LessOrEqual(t, x.finished.bytes, finishedBytes*5/4)
	x.History()
	require.Equal(t, usage{finishedBytes / maxRecordBytes, finishedBytes}, x.finished)
	audit(t, x)
}

func TestOpenRecordsAreNeverTrimmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := New(Config{NodeID: self})
		put(t, x, Accepted, FromProxy(1), job())
		await(30 * 24 * time.Hour)
		require.Empty(t, x.History())
		require.Len(t, x.Open(), 1)
	})
}
