// SPDX-License-Identifier: Apache-2.0

package jsonrpc

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPipelinedRequestsAreAnsweredOnceEachInOrder(t *testing.T) {
	const requests = 5000
	near, far := osPipes(t)
	serve(t, near, Config{Handle: echo})
	peer := newRawPeer(t, far)
	go func() {
		var all strings.Builder
		for i := range requests {
			fmt.Fprintf(&all, `{"jsonrpc":"2.0","id":"r%d","method":"ping","params":[%d]}`+"\n", i, i)
		}
		if _, err := far.Write([]byte(all.String())); err != nil {
			t.Errorf("write requests: %v", err)
		}
		_ = far.CloseWrite()
	}()
	for i := range requests {
		require.Equal(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":"r%d","result":[%d]}`, i, i), peer.line())
	}
	require.Empty(t, peer.rest())
}

// Both ends ask at the same time, and half of the answers come late and from
// other goroutines.
func TestEveryCallIsAnsweredOnceInBothDirections(t *testing.T) {
	const callers, callsEach = 8, 500
	for name, link := range map[string]func() (near, far *served){
		"system pipes": func() (*served, *served) {
			near, far := osPipes(t)
			return serve(t, near, Config{Handle: echoLater(t)}), serve(t, far, Config{Handle: echoLater(t)})
		},
		"net pipe": func() (*served, *served) {
			near, far := net.Pipe()
			return serve(t, near, Config{Handle: echoLater(t)}), serve(t, far, Config{Handle: echoLater(t)})
		},
	} {
		near, far := link()
		var answers atomic.Int64
		var wg sync.WaitGroup
		for _, s := range []*served{near, far} {
			for caller := range callers {
				wg.Go(func() {
					var ended sync.WaitGroup
					for i := range callsEach {
						want := strconv.Itoa(caller*callsEach + i)
						done := func(r Response) {
							defer ended.Done()
							answers.Add(1)
							if string(r.Result) != want || r.Err != nil || r.Error != nil {
								t.Errorf("%s: got %s, %s, %v; want %s", name, r.Result, r.Error, r.Err, want)
							}
						}
						ended.Add(1)
						s.Start("ping", json.RawMessage(want), 0, done)
						if i%100 == 99 { // stay below MaxCalls
							ended.Wait()
						}
					}
				})
			}
		}
		wg.Wait()
		require.EqualValues(t, 2*callers*callsEach, answers.Load(), name)
		require.Zero(t, waiting(near.Conn), name)
		require.Zero(t, waiting(far.Conn), name)
	}
}

// echoLater answers every second request at once and the others elsewhere.
func echoLater(t *testing.T) func(*Request) {
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	count := 0
	return func(r *Request) {
		if count++; count%2 == 0 {
			r.Reply(r.Params)
			return
		}
		wg.Go(func() {
			r.Reply(r.Params)
			r.Reply("a second answer")
			r.Fail(MethodNotFound("a third one"))
		})
	}
}

func TestFramesOfOneGoroutineKeepTheirOrder(t *testing.T) {
	const senders, framesEach = 8, 500
	near, far := net.Pipe()
	next := map[string]int{} // by sender
	var all sync.WaitGroup
	all.Add(senders * framesEach)
	serve(t, far, Config{Handle: func(r *Request) {
		defer all.Done()
		if got := string(r.Params); got != strconv.Itoa(next[r.Method]) {
			t.Errorf("%s: got %s; want %d", r.Method, got, next[r.Method])
		}
		next[r.Method]++
		r.Reply(nil)
	}})
	s := serve(t, near, Config{MaxCalls: senders * framesEach})
	for sender := range senders {
		go func() {
			method := strconv.Itoa(sender)
			for i := range framesEach {
				if i%2 == 0 {
					s.Start(method, json.RawMessage(strconv.Itoa(i)), 0, func(Response) {})
				} else if err := s.Notify(method, i); err != nil {
					t.Errorf("notify: %v", err)
				}
			}
		}()
	}
	all.Wait()
}

func TestFramesThatMayWaitLeaveTogetherAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		c := New(near, Config{Handle: func(*Request) {}})
		ended := make(chan struct{})
		go func() { defer close(ended); _ = c.Run(t.Context()) }()
		read := func() string {
			b := make([]byte, 4096)
			n, err := far.Read(b)
			require.NoError(t, err)
			return string(b[:n])
		}
		synctest.Wait() // until it waits for work
		began := time.Now()
		require.NoError(t, c.NotifySoon("a", nil))
		require.NoError(t, c.NotifySoon("b", json.RawMessage(`{"x":1}`)))
		require.Equal(t, `{"jsonrpc":"2.0","method":"a"}`+"\n"+`{"jsonrpc":"2.0","method":"b","params":{"x":1}}`+"\n", read())
		require.Equal(t, linger, time.Since(began))

		require.NoError(t, c.NotifySoon("c", nil))
		require.NoError(t, c.Notify("d", nil))
		require.Equal(t, `{"jsonrpc":"2.0","method":"c"}`+"\n"+`{"jsonrpc":"2.0","method":"d"}`+"\n", read())
		require.Equal(t, linger, time.Since(began), "what may not wait takes along what may")

		require.NoError(t, c.NotifySoon("e", nil))
		c.CloseWrite()
		require.Contains(t, read(), `"e"`, "nothing is left behind at the end")
		_ = far.Close()
		<-ended
	})
}

func TestEveryLineIsHeard(t *testing.T) {
	var heard atomic.Int64
	s, peer := serveRaw(t, Config{Heard: func() { heard.Add(1) }, MaxFrameBytes: 40})
	peer.send(`{"jsonrpc":"2.0","method":"n"}`, "", "malformed", strings.Repeat("x", 100),
		`{"jsonrpc":"2.0","id":1,"result":1}`)
	require.NoError(t, peer.Close())
	require.NoError(t, s.wait())
	require.EqualValues(t, 5, heard.Load())
}

func TestALastFrameWithoutNewlineIsHandled(t *testing.T) {
	near, far := osPipes(t)
	s := serve(t, near, Config{Handle: echo})
	_, err := far.Write([]byte(`{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}`))
	require.NoError(t, err)
	require.NoError(t, far.CloseWrite())
	require.Equal(t, `{"jsonrpc":"2.0","id":1,"result":[1]}`+"\n", newRawPeer(t, far).rest())
	require.NoError(t, s.wait())
}
