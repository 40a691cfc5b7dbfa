// SPDX-License-Identifier: Apache-2.0

package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// startCall starts a call and returns where its ends arrive; a second end would
// find no room and block.
func startCall(c *Conn, timeout time.Duration) (id int64, ends chan Response) {
	ends = make(chan Response, 2)
	id = c.Start("m", nil, timeout, func(r Response) { ends <- r })
	return id, ends
}

func TestCallsAreNumberedFromOne(t *testing.T) {
	s, peer := serveRaw(t, Config{})
	for want := int64(1); want <= 3; want++ {
		id, _ := startCall(s.Conn, 0)
		require.Equal(t, want, id)
		require.Equal(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m"}`, want), peer.line())
	}
}

func TestACallEndsByItsResponse(t *testing.T) {
	s, peer := serveRaw(t, Config{})
	for _, tt := range []struct {
		answer string
		want   Response
		err    error
	}{
		{`"result":{"b":1, "a":1.0}`, Response{Result: rawJSON(`{"b":1, "a":1.0}`)}, nil},
		{`"result":null`, Response{Result: rawJSON("null")}, nil},
		{`"result":1,"error":null`, Response{Result: rawJSON("1")}, nil},
		{`"method":"","result":false`, Response{Result: rawJSON("false")}, nil},
		{`"error":{"code":-7,"message":"x","data":[1]}`, Response{Error: rawJSON(`{"code":-7,"message":"x","data":[1]}`)},
			&Error{Code: -7, Message: "x", Data: rawJSON("[1]")}},
		{`"error":{"code":"x"}`, Response{Error: rawJSON(`{"code":"x"}`)},
			&Error{Code: CodeFailed, Message: "undecodable error object"}},
	} {
		id, ends := startCall(s.Conn, time.Hour)
		peer.line()
		peer.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,%s}`, id, tt.answer))
		got := <-ends
		require.Equal(t, tt.want, got, tt.answer)
		_, err := got.Decode()
		require.Equal(t, tt.err, err, tt.answer)
		require.Zero(t, waiting(s.Conn))
	}
}

func TestOnlyTheRightResponseEndsACall(t *testing.T) {
	c := unserved(Config{})
	id, ends := startCall(c, 0)
	require.EqualValues(t, 1, id)
	for _, wrong := range []string{
		`"id":"1","result":0`, `"id":1.0,"result":0`, `"id":1e0,"result":0`, `"id":[1],"result":0`, `"id":true,"result":0`,
		`"id":null,"result":0`, `"id":0,"result":0`, `"id":-1,"result":0`, `"id":2,"result":0`,
		`"id":18446744073709551617,"result":0`, `"result":0`, `"id":1`, `"id":1,"error":"x"`, `"id":1,"method":1,"result":0`,
		`"id":1,"result":0,"error":{}`, `"id":1,"method":"m","result":0`,
	} {
		c.dispatch([]byte(`{"jsonrpc":"2.0",` + wrong + `}`))
		require.Empty(t, ends, wrong)
	}
	c.dispatch([]byte(`{"jsonrpc":"1.0","id":1,"result":0}`))
	require.Empty(t, ends)
	c.dispatch([]byte(`{"jsonrpc":"2.0","id":1,"result":"right"}`))
	c.dispatch([]byte(`{"jsonrpc":"2.0","id":1,"result":"again"}`))
	require.Equal(t, Response{Result: rawJSON(`"right"`)}, <-ends)
	require.Empty(t, ends)
	require.Zero(t, waiting(c))
}

func TestACallEndsByItsDeadlineAndForgetsTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, peer := serveRaw(t, Config{})
		begin := time.Now()
		id, ends := startCall(s.Conn, 5*time.Second)
		peer.line()
		require.ErrorIs(t, (<-ends).Err, ErrTimeout)
		require.Equal(t, 5*time.Second, time.Since(begin))
		require.Zero(t, waiting(s.Conn))
		peer.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":"late"}`, id))
		synctest.Wait()
		require.Empty(t, ends)

		_, next := startCall(s.Conn, 5*time.Second) // the link still serves
		peer.line()
		peer.send(`{"jsonrpc":"2.0","id":2,"result":2}`)
		require.Equal(t, Response{Result: rawJSON("2")}, <-next)
	})
}

func TestAnAnsweredCallHasNoDeadlineLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, peer := serveRaw(t, Config{})
		_, ends := startCall(s.Conn, time.Second)
		peer.line()
		peer.send(`{"jsonrpc":"2.0","id":1,"result":1}`)
		require.NoError(t, (<-ends).Err)
		<-time.After(time.Minute)
		require.Empty(t, ends)
	})
}

func TestACallEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, peer := serveRaw(t, Config{})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		go peer.line()
		_, err := s.Call(ctx, "m", nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, waiting(s.Conn))
		peer.send(`{"jsonrpc":"2.0","id":1,"result":"late"}`)
		go func() {
			peer.line()
			peer.send(`{"jsonrpc":"2.0","id":2,"result":"in time"}`)
		}()
		result, err := s.Call(t.Context(), "m", []int{1})
		require.NoError(t, err)
		require.Equal(t, `"in time"`, string(result))
	})
}

func TestTheEndOfTheLinkEndsAllCalls(t *testing.T) {
	for name, end := range map[string]func(*served, *rawPeer){
		"peer closes": func(_ *served, peer *rawPeer) { _ = peer.Close() },
		"context":     func(s *served, _ *rawPeer) { s.cancel() },
		"close write": func(s *served, _ *rawPeer) { s.CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, peer := serveRaw(t, Config{})
				_, plain := startCall(s.Conn, 0)
				peer.line()
				_, timed := startCall(s.Conn, time.Hour)
				peer.line()
				end(s, peer)
				for _, ends := range []chan Response{plain, timed} {
					require.EqualError(t, (<-ends).Err, "jsonrpc peer closed") // WR-26
				}
				require.NoError(t, s.wait())
				require.Zero(t, waiting(s.Conn))

				_, later := startCall(s.Conn, time.Hour)
				require.Len(t, later, 1, "ended before Start returned")
				require.ErrorIs(t, (<-later).Err, ErrClosed)
				_, err := s.Call(t.Context(), "m", nil)
				require.ErrorIs(t, err, ErrClosed)
				require.ErrorIs(t, s.Notify("n", nil), ErrClosed)
				require.Zero(t, waiting(s.Conn))
				require.Zero(t, s.Dropped())
			})
		})
	}
}

func TestTooManyCallsAreRefused(t *testing.T) {
	c := unserved(Config{MaxCalls: 2})
	_, first := startCall(c, 0)
	startCall(c, 0)
	_, refused := startCall(c, 0)
	require.ErrorIs(t, (<-refused).Err, ErrTooManyCalls)
	_, err := c.Call(t.Context(), "m", nil)
	require.ErrorIs(t, err, ErrTooManyCalls)
	require.Len(t, queued(c), 2)

	c.dispatch([]byte(`{"jsonrpc":"2.0","id":1,"result":1}`))
	require.NoError(t, (<-first).Err)
	id, again := startCall(c, 0)
	require.Empty(t, again)
	require.EqualValues(t, 3, id, "a refused call takes no id")
}

func TestACallThatCannotBeSentEndsAtOnce(t *testing.T) {
	c := unserved(Config{MaxQueueBytes: 10})
	_, ends := startCall(c, time.Hour)
	require.Len(t, ends, 1, "before Start returned")
	require.ErrorIs(t, (<-ends).Err, ErrQueueFull)
	_, err := c.Call(t.Context(), "m", nil)
	require.ErrorIs(t, err, ErrQueueFull)
	_, err = c.Call(t.Context(), "m", func() {})
	require.ErrorAs(t, err, new(*json.UnsupportedTypeError))
	require.Zero(t, waiting(c))
	require.Zero(t, c.Dropped(), "only notifications are counted")
}

// Every way to end a call races with every other; exactly one wins.
func TestRacingEndsOfACallAreOne(t *testing.T) {
	near, far := osPipes(t)
	serve(t, far, Config{Handle: echo})
	s := serve(t, near, Config{})
	const calls = 1000
	ends := make(chan error, 2*calls) // a second end of any call would show
	for i := range calls {
		s.Start("m", nil, time.Duration(1+i%50)*time.Microsecond, func(r Response) { ends <- r.Err })
		if i == calls*9/10 {
			s.cancel()
		}
	}
	require.NoError(t, s.wait())
	for range calls {
		if err := <-ends; err != nil && !errors.Is(err, ErrTimeout) && !errors.Is(err, ErrClosed) {
			t.Errorf("call ended with %v", err)
		}
	}
	require.Empty(t, ends)
	require.Zero(t, waiting(s.Conn))
}
