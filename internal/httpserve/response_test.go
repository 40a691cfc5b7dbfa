// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// counter counts the system calls of a connection that did something.
type counter struct {
	net.Conn
	reads, writes *atomic.Int32
}

func (c counter) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.reads.Add(1)
	}
	return n, err
}

func (c counter) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

type countingListener struct {
	net.Listener
	counter
}

func (l countingListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	l.Conn = nc
	return l.counter, err
}
func (l countingListener) Close() error   { return l.Listener.Close() }
func (l countingListener) Addr() net.Addr { return l.Listener.Addr() }

func TestAShortRequestCostsOneReadAndOneWrite(t *testing.T) {
	for name, tt := range map[string]struct {
		request string
		body    string
		writes  int
	}{
		"get":             {get, "ok", 1},
		"post":            {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab", "ok", 1},
		"no body":         {get, "", 1},
		"a full buffer":   {get, strings.Repeat("x", bodyBuffer), 1},
		"more":            {get, strings.Repeat("x", bodyBuffer+1), 2},
		"many heads":      {get + get, "ok", 2},
		"chunked request": {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", "ok", 1},
	} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			counts := counter{reads: new(atomic.Int32), writes: new(atomic.Int32)}
			s := &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				for b := tt.body; b != ""; { // in pieces
					n := min(len(b), 1000)
					_, _ = io.WriteString(w, b[:n])
					b = b[n:]
				}
			})}
			served := make(chan struct{})
			go func() { defer close(served); _ = s.Serve(countingListener{ln, counts}) }()
			c := dial(t, ln.Addr().String())
			for range 3 {
				c.say(tt.request)
				for range strings.Count(tt.request, "Host") {
					_, body := c.answer("GET")
					require.Equal(t, len(tt.body), len(body))
				}
			}
			require.EqualValues(t, 3, counts.reads.Load())
			require.EqualValues(t, 3*tt.writes, counts.writes.Load())
			require.NoError(t, s.Close())
			<-served
		})
	}
}

func TestEachFlushIsOneWrite(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	counts := counter{reads: new(atomic.Int32), writes: new(atomic.Int32)}
	s := &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 10 {
			_, _ = io.WriteString(w, "data: x\n\n")
			w.(http.Flusher).Flush()
			w.(http.Flusher).Flush() // with nothing new
		}
	})}
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(countingListener{ln, counts}) }()
	c := dial(t, ln.Addr().String())
	c.say(get)
	_, body := c.answer("GET")
	require.Equal(t, strings.Repeat("data: x\n\n", 10), body)
	require.EqualValues(t, 11, counts.writes.Load(), "the last one ends the body")
	require.NoError(t, s.Close())
	<-served
}

func TestLargeWritesArriveWhole(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 10_000)
	c := dial(t, serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/length" {
			w.Header().Set("Content-Length", "160000")
		}
		for b := big; b != ""; {
			n := min(len(b), 1+len(b)%7919)
			m, err := io.WriteString(w, b[:n])
			if m != n || err != nil {
				t.Error(m, n, err)
			}
			if b = b[n:]; n%3 == 0 {
				w.(http.Flusher).Flush()
			}
		}
	})}))
	for _, path := range []string{"/length", "/chunked", "/length"} {
		c.say("GET " + path + " HTTP/1.1\r\nHost: h\r\n\r\n")
		_, body := c.answer("GET")
		require.True(t, body == big)
	}
}

func TestTheContentTypeIsGuessedUnlessTheHandlerSaysOtherwise(t *testing.T) {
	c := dial(t, serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/none" {
			w.Header()["Content-Type"], w.Header()["Date"] = nil, nil
		}
		_, _ = io.WriteString(w, "<html>")
	})}))
	c.say("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	resp, _ := c.answer("GET")
	require.Equal(t, "text/html; charset=utf-8", resp.Header.Get("Content-Type"))
	_, err := http.ParseTime(resp.Header.Get("Date"))
	require.NoError(t, err)
	c.say("GET /none HTTP/1.1\r\nHost: h\r\n\r\n")
	resp, _ = c.answer("GET")
	require.NotContains(t, resp.Header, "Content-Type")
	require.NotContains(t, resp.Header, "Date")
}
