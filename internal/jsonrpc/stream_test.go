// SPDX-License-Identifier: Apache-2.0

package jsonrpc

import (
	"encoding/json"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// counter is a state whose snapshot is its newest number.
type counter struct{ n atomic.Int64 }

func (c *counter) snapshot() (json.RawMessage, bool) {
	return strconv.AppendInt(nil, c.n.Load(), 10), true
}

func TestMarksOfAStreamCoalesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const marks = 10_000
		s, peer := serveRaw(t, Config{})
		var state counter
		stream := s.NewStream("state", state.snapshot)
		for range marks {
			state.n.Add(1)
			stream.Mark()
		}
		synctest.Wait() // the peer reads nothing, the writer waits for it
		for range marks {
			state.n.Add(1)
			stream.Mark()
		}
		frames, last := 0, ""
		for last != strconv.Itoa(2*marks) {
			last = paramsOf(t, peer.line())
			frames++
		}
		require.LessOrEqual(t, frames, 3)
		require.NoError(t, s.Notify("end", nil))
		require.Contains(t, peer.line(), `"end"`, "nothing older follows the newest")
	})
}

func TestTheNewestStateArrivesWhoeverMarks(t *testing.T) {
	const marks = 2000
	near, far := osPipes(t)
	s := serve(t, near, Config{})
	var state counter
	stream := s.NewStream("state", state.snapshot)
	for range 4 {
		go func() {
			for range marks {
				state.n.Add(1)
				stream.Mark()
			}
		}()
	}
	peer := newRawPeer(t, far)
	for last := int64(0); last < 4*marks; {
		got, err := strconv.ParseInt(paramsOf(t, peer.line()), 10, 64)
		require.NoError(t, err)
		require.GreaterOrEqual(t, got, last, "an older state after a newer one")
		last = got
	}
}

func TestASnapshotFollowsWhatWasQueuedBeforeItsMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *served
		var state counter
		var stream *Stream
		s, peer := serveRaw(t, Config{Handle: func(r *Request) {
			r.Reply("subscribed")
			stream.Mark()
		}})
		stream = s.NewStream("state", state.snapshot)
		require.NoError(t, s.Notify("ahead", nil)) // the writer is stuck in it
		synctest.Wait()
		stream.Mark()
		require.NoError(t, s.Notify("behind", nil))
		peer.send(`{"jsonrpc":"2.0","id":1,"method":"subscribe"}`)
		synctest.Wait()
		state.n.Store(7)
		for _, want := range []string{
			`{"jsonrpc":"2.0","method":"ahead"}`,
			`{"jsonrpc":"2.0","method":"behind"}`,
			`{"jsonrpc":"2.0","id":1,"result":"subscribed"}`,
			`{"jsonrpc":"2.0","method":"state","params":7}`,
		} {
			require.Equal(t, want, peer.line())
		}
	})
}

func TestAStreamWithoutContentWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, peer := serveRaw(t, Config{})
		asked := 0
		silent := s.NewStream("silent", func() (json.RawMessage, bool) {
			asked++
			return nil, false
		})
		bare := s.NewStream("bare", func() (json.RawMessage, bool) { return nil, true })
		silent.Mark()
		bare.Mark()
		require.Equal(t, `{"jsonrpc":"2.0","method":"bare"}`, peer.line())
		silent.Mark()
		synctest.Wait()
		require.Equal(t, 2, asked)
	})
}

// A snapshot may use the link it is written to; the queue's lock is not held.
func TestASnapshotMayMarkAndNotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, peer := serveRaw(t, Config{})
		var stream *Stream
		rounds := 0
		stream = s.NewStream("state", func() (json.RawMessage, bool) {
			if rounds++; rounds == 1 {
				stream.Mark()
				_ = s.Notify("extra", nil)
			}
			return json.RawMessage(strconv.Itoa(rounds)), true
		})
		stream.Mark()
		require.Contains(t, peer.line(), `"extra"`) // queued before the snapshot it was queued from
		require.Contains(t, peer.line(), `"params":1`)
		require.Contains(t, peer.line(), `"params":2`)
	})
}

func TestMarksBeforeRunAndAfterItsEndAreHarmless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := memoryPipes()
		c := New(near, Config{Handle: echo})
		var state counter
		stream := c.NewStream("state", state.snapshot)
		stream.Mark()
		state.n.Store(3)
		ended := make(chan error)
		go func() { ended <- c.Run(t.Context()) }()
		require.Contains(t, newRawPeer(t, far).line(), `"params":3`)
		require.NoError(t, far.Close())
		require.NoError(t, <-ended)
		stream.Mark()
		stream.Mark()
	})
}
