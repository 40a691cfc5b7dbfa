// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// noticed is how soon a request's context must have ended after its client left.
const noticed = 100 * time.Millisecond

// Every stage a request can be in when its client leaves, and how it leaves.
func TestAClientThatLeavesEndsItsRequestWithin100ms(t *testing.T) {
	stages := map[string]struct {
		said   string
		handle func(w http.ResponseWriter, r *http.Request, ready func())
	}{
		"before the first byte": {get, func(_ http.ResponseWriter, _ *http.Request, ready func()) { ready() }},
		"with its body read": {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab",
			func(_ http.ResponseWriter, r *http.Request, ready func()) { _, _ = io.ReadAll(r.Body); ready() }},
		"with its chunked body read": {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
			func(_ http.ResponseWriter, r *http.Request, ready func()) { _, _ = io.ReadAll(r.Body); ready() }},
		"while the answer streams": {get, func(w http.ResponseWriter, r *http.Request, ready func()) {
			_, _ = io.WriteString(w, "begin")
			w.(http.Flusher).Flush()
			ready()
		}},
		"while the answer streams slowly": {get, func(w http.ResponseWriter, r *http.Request, ready func()) {
			tick := time.NewTicker(15 * time.Millisecond)
			defer tick.Stop()
			for i := 0; r.Context().Err() == nil && i < 500; i++ {
				_, _ = io.WriteString(w, "more")
				w.(http.Flusher).Flush()
				if i == 5 {
					ready()
				}
				<-tick.C
			}
		}},
		"with half of its body sent": {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc",
			func(_ http.ResponseWriter, r *http.Request, ready func()) {
				_, _ = io.ReadFull(r.Body, make([]byte, 3))
				ready()
				_, _ = r.Body.Read(make([]byte, 1))
			}},
	}
	leave := map[string]func(*net.TCPConn){
		"closed": func(c *net.TCPConn) { _ = c.Close() },
		"reset":  func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() },
		"half":   func(c *net.TCPConn) { _ = c.CloseWrite() },
	}
	for stage, at := range stages {
		for how, leave := range leave {
			t.Run(stage+", "+how, func(t *testing.T) {
				took := timeToNotice(t, at.said, at.handle, leave)
				for range 4 { // a machine with other things to do may be late itself
					if took >= noticed {
						took = min(took, timeToNotice(t, at.said, at.handle, leave))
					}
				}
				t.Log(took)
				require.Less(t, took, noticed)
			})
		}
	}
}

// timeToNotice returns how long after its client a request ended.
func timeToNotice(t *testing.T, said string, handle func(http.ResponseWriter, *http.Request, func()),
	leave func(*net.TCPConn)) time.Duration {
	t.Helper()
	ready, ended := make(chan struct{}), make(chan time.Time, 1)
	c := dial(t, serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handle(w, r, func() { close(ready) })
		select {
		case <-r.Context().Done():
			ended <- time.Now()
		case <-time.After(patience):
			t.Error("not noticed")
		}
	})}))
	c.say(said)
	await(t, "the stage", ready)
	left := time.Now()
	leave(c.Conn.(*net.TCPConn))
	select {
	case at := <-ended:
		return at.Sub(left)
	case <-time.After(2 * patience):
		t.Fatal("not noticed")
	}
	return 0
}

func TestALongRequestLeavesTheConnectionAndWhatWasPipelinedBehindIt(t *testing.T) {
	watched := make(chan struct{})
	s := &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			c := w.(*response).c
			require.Eventually(t, func() bool {
				c.in.mu.Lock()
				defer c.in.mu.Unlock()
				return c.in.reading || c.in.hasAhead
			}, patience, time.Millisecond)
			watched <- struct{}{}
			<-watched
			require.NoError(t, r.Context().Err())
		}
		_, _ = io.WriteString(w, r.URL.Path)
	})}
	c := dial(t, serve(t, s))
	for range 3 {
		c.say("GET /long HTTP/1.1\r\nHost: h\r\n\r\n")
		await(t, "the watcher", watched)
		watched <- struct{}{}
		_, body := c.answer("GET")
		require.Equal(t, "/long", body)

		c.say("GET /long HTTP/1.1\r\nHost: h\r\n\r\n")
		await(t, "the watcher", watched)
		c.say("GET /next HTTP/1.1\r\nHost: h\r\n\r\nGET /last HTTP/1.1\r\nHost: h\r\n\r\n")
		watched <- struct{}{}
		for _, want := range []string{"/long", "/next", "/last"} {
			_, body := c.answer("GET")
			require.Equal(t, want, body)
		}
	}
}

func TestAQuickRequestStartsNoWatcherAndAnIdleServerDoesNothing(t *testing.T) {
	s := &Server{Handler: http.HandlerFunc(echo)}
	c := dial(t, serve(t, s))
	for range 100 {
		c.say("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		c.answer("GET")
	}
	require.Eventually(t, func() bool { return !s.looking.Load() }, patience, time.Millisecond)
	was := s.tick.Load()
	<-time.After(5 * lookEvery)
	require.Equal(t, was, s.tick.Load())
}
