// SPDX-License-Identifier: Apache-2.0

package jsonrpc

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAnIdleLinkEndsAtOnceWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, peer := serveRaw(t, Config{})
		begin := time.Now()
		s.cancel()
		require.NoError(t, s.wait())
		require.Zero(t, time.Since(begin))
		require.Empty(t, peer.rest())
	})
}

func TestALinkWhosePeerNeverReadsEndsWithinTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := serveRaw(t, Config{})
		require.NoError(t, s.Notify("n", nil))
		synctest.Wait()
		begin := time.Now()
		s.cancel()
		require.NoError(t, s.wait())
		require.Equal(t, flushGrace, time.Since(begin))
	})
}

func TestASystemPipeThatNobodyReadsEndsWithinTheGrace(t *testing.T) {
	near, _ := osPipes(t)
	s := serve(t, near, Config{})
	require.NoError(t, s.Notify("n", strings.Repeat("x", 1<<20))) // no pipe buffer is that large
	s.cancel()
	begin := time.Now()
	require.NoError(t, s.wait())
	require.Less(t, time.Since(begin), 5*flushGrace)
}

func TestWhatIsQueuedIsWrittenBeforeTheEnd(t *testing.T) {
	for name, end := range map[string]func(*served, duplex){
		"context":          func(s *served, _ duplex) { s.cancel() },
		"end of input":     func(_ *served, far duplex) { _ = far.CloseWrite() },
		"close write":      func(s *served, _ duplex) { s.CloseWrite() },
		"close write, ctx": func(s *served, _ duplex) { s.CloseWrite(); s.cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := memoryPipes()
				s := serve(t, near, Config{})
				require.NoError(t, s.Notify("one", nil))
				synctest.Wait()
				require.NoError(t, s.Notify("two", nil))
				var state counter
				s.NewStream("three", state.snapshot).Mark()
				end(s, far)
				<-time.After(flushGrace * 9 / 10)
				require.Equal(t, `{"jsonrpc":"2.0","method":"one"}`+"\n"+`{"jsonrpc":"2.0","method":"two"}`+"\n"+
					`{"jsonrpc":"2.0","method":"three","params":0}`+"\n", newRawPeer(t, far).rest())
				require.NoError(t, far.CloseWrite())
				require.NoError(t, s.wait())
			})
		})
	}
}

func TestAHalfClosedLinkHandlesTheLastFramesOfItsPeer(t *testing.T) {
	handled := make(chan string, 2) // both frames
	near, far := osPipes(t)
	s := serve(t, near, Config{Handle: func(r *Request) {
		r.Reply(nil) // nowhere to go any more
		handled <- r.Method
	}})
	_, ends := startCall(s.Conn, 0)
	s.CloseWrite()
	s.CloseWrite()
	require.ErrorIs(t, s.Notify("n", nil), ErrClosed)

	peer := newRawPeer(t, far)
	require.Equal(t, `{"jsonrpc":"2.0","id":1,"method":"m"}`+"\n", peer.rest())
	peer.send(`{"jsonrpc":"2.0","id":1,"method":"request"}`, `{"jsonrpc":"2.0","id":1,"result":"answer"}`,
		`{"jsonrpc":"2.0","method":"last"}`)
	require.Equal(t, Response{Result: rawJSON(`"answer"`)}, <-ends)
	require.Equal(t, []string{"request", "last"}, []string{<-handled, <-handled})
	require.NoError(t, far.CloseWrite())
	require.NoError(t, s.wait())
}

func TestAHalfClosedLinkEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := memoryPipes()
		s := serve(t, near, Config{})
		s.CloseWrite()
		require.Empty(t, newRawPeer(t, far).rest())
		synctest.Wait()
		s.cancel()
		require.NoError(t, s.wait())
	})
}

func TestAContextThatIsOverEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := memoryPipes()
		c := New(near, Config{Handle: echo})
		require.NoError(t, c.Notify("farewell", nil))
		s := served{Conn: c, ended: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		go func() {
			defer close(s.ended)
			s.err = c.Run(ctx)
		}()
		require.Contains(t, newRawPeer(t, far).rest(), "farewell")
		require.NoError(t, s.wait())
	})
}

func TestAnswersOfTheEndedHookAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := memoryPipes()
		var kept *Request
		s := serve(t, near, Config{
			Handle: func(r *Request) { kept = r },
			Ended:  func() { kept.Reply("late") },
		})
		peer := newRawPeer(t, far)
		peer.send(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		require.NoError(t, far.CloseWrite())
		require.Equal(t, `{"jsonrpc":"2.0","id":1,"result":"late"}`+"\n", peer.rest())
		require.NoError(t, s.wait())
	})
}

// Whoever the hook waits for may himself wait for a call on this link.
func TestTheEndedHookMayWaitForACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := memoryPipes()
		called := make(chan error)
		var ended error
		s := serve(t, near, Config{Ended: func() { ended = <-called }})
		go func() {
			_, err := s.Call(context.Background(), "m", nil)
			called <- err
		}()
		newRawPeer(t, far).line()
		require.NoError(t, far.CloseWrite())
		require.NoError(t, s.wait())
		require.ErrorIs(t, ended, ErrClosed)
	})
}

func TestReadErrorsThatAreNoOrderlyEndAreReturned(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct{ read, want error }{
		{io.EOF, nil}, {io.ErrClosedPipe, nil}, {net.ErrClosed, nil}, {brokenPipes[0], nil}, {broken, broken},
	} {
		r, w := io.Pipe()
		_ = w.CloseWithError(tt.read)
		s := serve(t, duplex{r, discard{}}, Config{})
		require.ErrorIs(t, s.wait(), tt.want)
	}
}

// discard is a writer without an end.
type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) Close() error                { return nil }
