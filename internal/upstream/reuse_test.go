// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const ok2 = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func TestAConnectionServesOneRequestAfterAnother(t *testing.T) {
	for name, answer := range map[string]string{
		"length":     ok2,
		"chunked":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
		"trailers":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n2\r\nok\r\n0\r\nA: b\r\n\r\n",
		"after 100":  "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + ok2,
		"keep-alive": "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(c *peer) {
				for range 3 {
					c.read()
					c.say(answer)
				}
			})
			p := newPool(t, Config{})
			for range 3 {
				status, body := fetch(t, p, post(s.addr, "x"))
				require.Equal(t, http.StatusOK, status)
				require.Equal(t, "ok", body)
			}
			require.Equal(t, 1, s.accepted())
		})
	}
}

func TestAnAnswerWithoutABodyLeavesTheConnectionUsable(t *testing.T) {
	for name, tt := range map[string]struct{ method, answer string }{
		"head with length":    {http.MethodHead, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"},
		"head, chunked":       {http.MethodHead, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"},
		"head without length": {http.MethodHead, "HTTP/1.1 200 OK\r\n\r\n"},
		"no content":          {http.MethodGet, "HTTP/1.1 204 No Content\r\n\r\n"},
		"not modified":        {http.MethodGet, "HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n"},
		"empty":               {http.MethodGet, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(c *peer) {
				c.read()
				c.say(tt.answer)
				c.read()
				c.say(ok2)
			})
			p := newPool(t, Config{})
			req := get(s.addr)
			req.Method = tt.method
			resp, err := p.Do(limited(t), req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close(), "unread, for there is nothing to read")
			_, body := fetch(t, p, get(s.addr))
			require.Equal(t, "ok", body)
			require.Equal(t, 1, s.accepted())
		})
	}
}

func TestAConnectionIsNotReused(t *testing.T) {
	for name, answer := range map[string]string{
		"the server closes":     "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
		"delimited by close":    "HTTP/1.1 200 OK\r\n\r\nok",
		"HTTP/1.0":              "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"more than was said":    ok2 + "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
		"an answer unasked for": ok2 + "HTTP/1.1 408 Request Timeout\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			first := func(c *peer) {
				c.read()
				c.say(answer)
				if !strings.Contains(answer, "Content-Length") {
					return
				}
				c.untilClosed()
			}
			s := serve(t, first, func(c *peer) { c.read(); c.say(ok2) })
			p := newPool(t, Config{})
			for range 2 {
				_, body := fetch(t, p, get(s.addr))
				require.Equal(t, "ok", body)
			}
			require.Equal(t, 2, s.accepted())
		})
	}
}

func TestAnAnswerThatIsNotReadToItsEndClosesTheConnection(t *testing.T) {
	closed := make(chan bool, 1)
	s := serve(t, func(c *peer) {
		c.read()
		c.say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok")
		closed <- c.untilClosed()
	})
	p := newPool(t, Config{})
	resp, err := p.Do(limited(t), get(s.addr))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.NoError(t, resp.Body.Close(), "twice is harmless")
	require.True(t, <-closed)
}

func TestAConnectionClosedWhileIdleIsNoticedBeforeItsUse(t *testing.T) {
	closed := make(chan struct{})
	s := serve(t,
		func(c *peer) { c.read(); c.say(ok2); _ = c.Close(); close(closed) },
		func(c *peer) { c.read(); c.say(ok2) })
	p := newPool(t, Config{})
	fetch(t, p, get(s.addr))
	<-closed
	_, body := fetch(t, p, post(s.addr, "x"))
	require.Equal(t, "ok", body)
}

// crossing serves one request and closes on the second one, after its head,
// which is as if the close and the request had crossed.
func crossing(c *peer) {
	c.read()
	c.say(ok2)
	_, _ = c.in.ReadString('\n')
	_ = c.Conn.(*net.TCPConn).SetLinger(0) // a reset
}

func TestARequestThatCrossedTheCloseIsSentOnceMore(t *testing.T) {
	s := serve(t, crossing, func(c *peer) {
		_, body := c.read()
		c.say(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
	})
	p := newPool(t, Config{})
	fetch(t, p, get(s.addr))
	_, body := fetch(t, p, post(s.addr, "the whole body"))
	require.Equal(t, "the whole body", body)
	require.Equal(t, 2, s.accepted())
}

func TestARequestIsNeverSentAThirdTime(t *testing.T) {
	s := serve(t, crossing, func(c *peer) { _, _ = c.in.ReadString('\n') })
	p := newPool(t, Config{})
	fetch(t, p, get(s.addr))
	_, err := p.Do(limited(t), post(s.addr, "x"))
	require.Error(t, err)
	require.Equal(t, 2, s.accepted())
}

func TestARequestOnAFreshConnectionIsSentOnce(t *testing.T) {
	s := serve(t, func(c *peer) { c.read() })
	p := newPool(t, Config{})
	_, err := p.Do(limited(t), get(s.addr))
	require.Error(t, err)
	require.Equal(t, 1, s.accepted())
}

func TestARequestIsNotRepeatedAfterOneByteOfItsAnswer(t *testing.T) {
	s := serve(t, func(c *peer) {
		c.read()
		c.say(ok2)
		c.read()
		c.say("H")
	})
	p := newPool(t, Config{})
	fetch(t, p, get(s.addr))
	_, err := p.Do(limited(t), get(s.addr))
	require.Error(t, err)
	require.Equal(t, 1, s.accepted())
}

// A body that can be read only once cannot be sent again, so it must not meet a
// connection that may be closed already.
func TestAStreamedBodyLeavesOnAFreshConnection(t *testing.T) {
	s := serve(t, crossing, func(c *peer) {
		_, body := c.read()
		c.say(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
	})
	p := newPool(t, Config{})
	fetch(t, p, get(s.addr))
	req := post(s.addr, "")
	req.Body, req.Stream, req.Length = nil, strings.NewReader("streamed"), 8
	_, body := fetch(t, p, req)
	require.Equal(t, "streamed", body)
}

func TestDropForgetsTheConnectionsToOneAddress(t *testing.T) {
	closed := make(chan bool, 1)
	s := serve(t, func(c *peer) { c.read(); c.say(ok2); closed <- c.untilClosed() })
	other := serve(t, func(c *peer) {
		for range 2 {
			c.read()
			c.say(ok2)
		}
	})
	p := newPool(t, Config{})
	fetch(t, p, get(s.addr))
	fetch(t, p, get(other.addr))
	p.Drop(s.addr)
	require.True(t, <-closed)
	fetch(t, p, get(other.addr))
	require.Equal(t, 1, other.accepted())
}

// fetchAtOnce sends that many requests; what it returns waits for the ends of their answers.
func fetchAtOnce(t *testing.T, p *Pool, s *server, n int) *sync.WaitGroup {
	var asking sync.WaitGroup
	for range n {
		asking.Go(func() {
			resp, err := p.Do(limited(t), get(s.addr))
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
		})
	}
	return &asking
}

func TestNoMoreThanTheBoundIsKept(t *testing.T) {
	var at sync.WaitGroup // all three requests are out at once
	at.Add(3)
	answer := func(c *peer) {
		c.read()
		at.Done()
		at.Wait()
		c.say(ok2)
		c.untilClosed()
	}
	s := serve(t, answer, answer, answer)
	p := newPool(t, Config{MaxIdle: 2})
	fetchAtOnce(t, p, s, 3).Wait()
	require.Equal(t, 2, p.kept())
}

// pipeServer is a dialler to a server in memory that answers every request.
func pipeServer(dials *atomic.Int32) func(context.Context, string) (net.Conn, error) {
	return func(context.Context, string) (net.Conn, error) {
		dials.Add(1)
		near, far := net.Pipe()
		go func() {
			defer func() { _ = far.Close() }()
			buf := make([]byte, 4<<10)
			for {
				if _, err := far.Read(buf); err != nil {
					return
				}
				if _, err := io.WriteString(far, ok2); err != nil {
					return
				}
			}
		}()
		return near, nil
	}
}

func TestAnIdleConnectionIsClosedAfterItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int32
		p := NewPool(Config{Dial: pipeServer(&dials), IdleTimeout: 4 * time.Second})
		defer p.Close()
		fetch(t, p, get("a"))
		pass(3 * time.Second)
		fetch(t, p, get("a"))
		require.EqualValues(t, 1, dials.Load())
		pass(4 * time.Second)
		fetch(t, p, get("a"))
		require.EqualValues(t, 2, dials.Load(), "too old to be used")
		pass(8 * time.Second)
		synctest.Wait()
		require.Equal(t, 0, p.kept(), "closed although nobody asked")
		fetch(t, p, get("a"))
		require.Equal(t, 1, p.kept())
	})
}

func TestCloseClosesWhatIsIdleAndKeepsNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int32
		p := NewPool(Config{Dial: pipeServer(&dials)})
		fetch(t, p, get("a"))
		inUse, err := p.Do(t.Context(), get("b"))
		require.NoError(t, err)
		p.Close()
		p.Close()
		body, err := io.ReadAll(inUse.Body)
		require.NoError(t, err, "a response under way is not cut")
		require.Equal(t, "ok", string(body))
		require.NoError(t, inUse.Body.Close())
		require.Equal(t, 0, p.kept())
		// The bubble would not end if a server's goroutine were left.
	})
}

func TestIdleConnectionsHoldNoGoroutineAndCloseGivesTheDescriptorsBack(t *testing.T) {
	if _, err := os.ReadDir("/proc/self/fd"); err != nil {
		t.Skip("needs /proc")
	}
	release := make(chan struct{})
	var held sync.WaitGroup
	held.Add(20)
	scripts := make([]script, 20)
	for i := range scripts {
		scripts[i] = func(c *peer) {
			c.read()
			held.Done()
			<-release
			c.say(ok2)
			c.untilClosed()
		}
	}
	s := serve(t, scripts...)
	before := sockets(t)
	p := NewPool(Config{})
	asking := fetchAtOnce(t, p, s, 20)
	held.Wait()
	close(release)
	asking.Wait()
	require.Equal(t, 20, p.kept())
	require.Zero(t, goroutinesIn(), "a connection at rest needs no goroutine")
	p.Close()
	require.Eventually(t, func() bool { return sockets(t) <= before }, patience, 5*time.Millisecond)
}

// sockets counts the open sockets of this process.
func sockets(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	n := 0
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// goroutinesIn counts the goroutines that run a method of this package.
func goroutinesIn() int {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	n := 0
	for stack := range strings.SplitSeq(string(buf), "\n\n") {
		if strings.Contains(stack, "upstream.(*") && !strings.Contains(stack, "upstream.(*peer)") {
			n++
		}
	}
	return n
}

// kept counts the idle connections.
func (p *Pool) kept() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, list := range p.idle {
		n += len(list)
	}
	return n
}

// pass lets time go by in a bubble.
func pass(d time.Duration) { <-time.After(d) }
