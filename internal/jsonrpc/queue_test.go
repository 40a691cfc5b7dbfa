// SPDX-License-Identifier: Apache-2.0

package jsonrpc

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAFullQueueRefusesNotificationsAndCounts(t *testing.T) {
	const bound = 1000
	c := unserved(Config{Handle: echo, MaxQueueBytes: bound})
	taken := 0
	for c.Notify("n", strings.Repeat("x", 50)) == nil {
		taken++
	}
	require.Positive(t, taken)
	require.LessOrEqual(t, len(c.out.buf), bound)
	require.ErrorIs(t, c.Notify(strings.Repeat("long", 100), nil), ErrQueueFull, "the method counts, too")
	require.EqualValues(t, 2, c.Dropped())

	c.dispatch([]byte(`{"jsonrpc":"2.0","id":1,"method":"ping","params":"` + strings.Repeat("y", bound) + `"}`))
	frames := queued(c)
	require.Len(t, frames, taken+1)
	require.Contains(t, frames[taken], `"id":1,"result":"yyy`)
	require.NotContains(t, strings.Join(frames, ""), "long", "nothing of a refused frame is left")
}

func TestAFrameThatFillsTheQueueExactlyIsTaken(t *testing.T) {
	frame := len(appendRequest(nil, nil, "n", rawJSON("[1]")))
	require.NoError(t, unserved(Config{MaxQueueBytes: frame}).Notify("n", []int{1}))
	require.ErrorIs(t, unserved(Config{MaxQueueBytes: frame - 1}).Notify("n", []int{1}), ErrQueueFull)
}

// What the writer holds in its hands is not yet with the peer, so it counts.
func TestTheBatchInFlightCountsAsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, peer := serveRaw(t, Config{MaxQueueBytes: 1000})
		for s.Notify("n", 1) == nil {
		}
		synctest.Wait() // the writer has taken all of it, and the peer nothing
		require.ErrorIs(t, s.Notify("n", 2), ErrQueueFull)
		for range 1000 / len(`{"jsonrpc":"2.0","method":"n","params":1}.`) {
			peer.line()
		}
		synctest.Wait()
		require.NoError(t, s.Notify("n", 3))
		require.Equal(t, "3", paramsOf(t, peer.line()))
		require.EqualValues(t, 2, s.Dropped())
	})
}

func TestAPeerThatAsksWithoutReadingWaitsForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const requests, bound = 1000, 4000
		var handled atomic.Int64
		s, peer := serveRaw(t, Config{MaxQueueBytes: bound, Handle: func(r *Request) {
			handled.Add(1)
			r.Reply(r.Params)
		}})
		go func() {
			for i := range requests {
				peer.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping","params":"%0100d"}`, i, i))
			}
		}()
		synctest.Wait()
		paused := handled.Load()
		require.Positive(t, paused)
		require.LessOrEqual(t, paused, int64(bound/100+2), "a response is over 100 bytes")
		<-time.After(time.Minute)
		require.Equal(t, paused, handled.Load(), "reading goes on although the peer does not read")

		for i := range requests {
			require.Equal(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":"%0100d"}`, i, i), peer.line())
		}
		synctest.Wait()
		require.EqualValues(t, requests, handled.Load())
		require.Zero(t, s.Dropped())
	})
}

func TestAPausedLinkEndsWithItsPeerAndWithItsContext(t *testing.T) {
	for name, end := range map[string]func(*served, *rawPeer){
		"peer closes": func(_ *served, peer *rawPeer) { _ = peer.Close() },
		"context":     func(s *served, _ *rawPeer) { s.cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, peer := serveRaw(t, Config{MaxQueueBytes: 10, Handle: echo})
				peer.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
				synctest.Wait()
				end(s, peer)
				require.NoError(t, s.wait())
			})
		})
	}
}

// Notifications wait in the queue without stopping the reader: it must see the
// answers to our own calls.
func TestQueuedNotificationsDoNotPauseReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, peer := serveRaw(t, Config{MaxQueueBytes: 1000})
		_, ends := startCall(s.Conn, 0)
		peer.line()
		for s.Notify("n", nil) == nil {
		}
		peer.send(`{"jsonrpc":"2.0","id":1,"result":1}`)
		require.NoError(t, (<-ends).Err)
	})
}

func TestSmallFramesShareOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		var writes []string
		gate := make(chan struct{})
		s := serve(t, &faultyConn{near, func(b []byte) (int, error) {
			writes = append(writes, string(b))
			<-gate
			return len(b), nil
		}}, Config{})
		require.NoError(t, s.Notify("first", nil))
		synctest.Wait()
		for range 100 {
			require.NoError(t, s.Notify("n", nil))
		}
		close(gate)
		synctest.Wait()
		require.Len(t, writes, 2)
		require.Equal(t, 100, strings.Count(writes[1], "\n"))
	})
}

func TestAnIdleLinkKeepsNoLargeBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, peer := serveRaw(t, Config{})
		for range 3 {
			require.NoError(t, s.Notify("n", strings.Repeat("x", 1<<20)))
			peer.line()
			require.NoError(t, s.Notify("n", nil))
			peer.line()
		}
		synctest.Wait()
		s.out.mu.Lock()
		defer s.out.mu.Unlock()
		require.LessOrEqual(t, cap(s.out.buf)+cap(s.out.spare), 2*keepBytes)
	})
}

func TestNotifyReportsWhatDoesNotEncode(t *testing.T) {
	c := unserved(Config{})
	require.Error(t, c.Notify("n", func() {}))
	require.Zero(t, c.Dropped())
	require.NoError(t, c.Notify("n", nil))
	require.NoError(t, c.Notify("n", rawJSON("")))
	require.Equal(t, []string{`{"jsonrpc":"2.0","method":"n"}` + "\n", `{"jsonrpc":"2.0","method":"n"}`}, queued(c))
	require.False(t, errors.Is(c.Notify("n", func() {}), ErrClosed))
}
