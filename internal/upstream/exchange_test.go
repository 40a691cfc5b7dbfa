// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestARequestLeavesWithOneFraming(t *testing.T) {
	for name, tt := range map[string]struct {
		req  Request
		want string
	}{
		"no body":       {Request{Method: "GET"}, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"},
		"post, no body": {Request{Method: "POST"}, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"},
		"body":          {Request{Method: "POST", Body: []byte("abc")}, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"},
		"empty body":    {Request{Method: "DELETE", Body: []byte{}}, "DELETE / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"},
		"stream": {Request{Method: "POST", Stream: strings.NewReader("abcd"), Length: 3},
			"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"},
		"empty stream": {Request{Method: "POST", Stream: strings.NewReader(""), Length: 0},
			"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"},
		"chunked": {Request{Method: "POST", Stream: io.MultiReader(strings.NewReader("abc"), strings.NewReader("de")), Length: -1},
			"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"},
		"empty chunked": {Request{Method: "POST", Stream: strings.NewReader(""), Length: -1},
			"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		"upgrade": {Request{Method: "GET", Upgrade: "websocket", Header: http.Header{"A": {"b"}}},
			"GET / HTTP/1.1\r\nHost: h\r\nA: b\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got := make(chan string, 1)
			s := serve(t, func(c *peer) {
				buf := make([]byte, len(tt.want))
				_, _ = io.ReadFull(c.in, buf)
				got <- string(buf)
				c.say(ok2)
			})
			tt.req.Addr, tt.req.Host, tt.req.Target = s.addr, "h", "/"
			fetch(t, newPool(t, Config{}), &tt.req)
			require.Equal(t, tt.want, <-got)
		})
	}
}

func TestNothingInAHeadCanStartASecondRequest(t *testing.T) {
	p := newPool(t, Config{Dial: func(context.Context, string) (net.Conn, error) {
		t.Error("it must not even be dialled for")
		return nil, errors.New("dialled")
	}})
	for name, change := range map[string]func(*Request){
		"target, line":   func(r *Request) { r.Target = "/ HTTP/1.1\r\nX: y" },
		"target, blank":  func(r *Request) { r.Target = "/ x" },
		"target, empty":  func(r *Request) { r.Target = "" },
		"host":           func(r *Request) { r.Host = "h\r\nX: y" },
		"method":         func(r *Request) { r.Method = "GET / HTTP/1.1\r\n" },
		"value, newline": func(r *Request) { r.Header = http.Header{"A": {"fine", "b\nX: y"}} },
		"value, return":  func(r *Request) { r.Header = http.Header{"A": {"b\rX: y"}} },
		"name":           func(r *Request) { r.Header = http.Header{"A: b\r\nX": {"y"}} },
		"upgrade":        func(r *Request) { r.Upgrade = "websocket\r\nX: y" },
	} {
		req := get("h")
		change(req)
		_, err := p.Do(limited(t), req)
		if !errors.Is(err, errMalformed) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// What an engine may send to confuse where an answer ends. None may hand a byte
// of a second answer to the next request.
func TestAnAmbiguousAnswerIsRefusedOrEndsItsConnection(t *testing.T) {
	const evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
	for name, answer := range map[string]string{
		"two lengths":          "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 49\r\n\r\n" + evil,
		"list of lengths":      "HTTP/1.1 200 OK\r\nContent-Length: 0, 49\r\n\r\n" + evil,
		"signed length":        "HTTP/1.1 200 OK\r\nContent-Length: +0\r\n\r\n" + evil,
		"negative length":      "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n" + evil,
		"hexadecimal length":   "HTTP/1.1 200 OK\r\nContent-Length: 0x0\r\n\r\n" + evil,
		"unknown coding":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n" + evil,
		"chunked twice":        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n" + evil,
		"length and chunked":   "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + evil,
		"chunk size overflow":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\n" + evil,
		"blank before colon":   "HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n" + evil,
		"folded line":          "HTTP/1.1 200 OK\r\nX: a\r\n Content-Length: 0\r\n\r\n" + evil,
		"no status":            "HTTP/1.1 \r\n\r\n" + evil,
		"status of four":       "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n" + evil,
		"status below 100":     "HTTP/1.1 050 What\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" + evil,
		"another protocol":     "SSH-2.0-OpenSSH\r\n" + evil,
		"101 nobody asked for": "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n" + evil,
		"body behind a 204":    "HTTP/1.1 204 No Content\r\nContent-Length: 49\r\n\r\n" + evil,
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(c *peer) {
				c.read()
				c.say(answer)
			}, func(c *peer) {
				c.read()
				c.say(ok2)
			})
			p := newPool(t, Config{})
			resp, err := p.Do(limited(t), get(s.addr))
			if err == nil {
				require.GreaterOrEqual(t, resp.StatusCode, 200)
				_, _ = io.ReadAll(resp.Body)
				require.NoError(t, resp.Body.Close())
			}
			_, body := fetch(t, p, get(s.addr))
			require.Equal(t, "ok", body)
		})
	}
}

func TestAHeadIsBounded(t *testing.T) {
	for name, start := range map[string]string{
		"one line":     "HTTP/1.1 200 OK\r\nA: ",
		"status line":  "HTTP/1.1 200 ",
		"many answers": "",
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(c *peer) {
				c.read()
				c.say(start)
				fill := strings.Repeat("a", 1000)
				if start == "" {
					fill = "HTTP/1.1 103 Early Hints\r\n\r\n"
				}
				for range 1 << 20 {
					if _, err := io.WriteString(c, fill); err != nil {
						return
					}
				}
				t.Error("read without bound")
			})
			_, err := newPool(t, Config{MaxHeadBytes: 16 << 10}).Do(limited(t), get(s.addr))
			require.ErrorIs(t, err, ErrHeadTooLong)
		})
	}
}

func TestABodyIsNotPartOfTheBoundOfAHead(t *testing.T) {
	body := strings.Repeat("b", 100_000)
	s := serve(t, func(c *peer) {
		for range 2 {
			c.read()
			c.say(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
		}
	})
	p := newPool(t, Config{MaxHeadBytes: 1000})
	for range 2 {
		_, got := fetch(t, p, get(s.addr))
		require.Equal(t, len(body), len(got))
	}
}

func TestTrailersFollowTheBody(t *testing.T) {
	s := serve(t, func(c *peer) {
		c.read()
		c.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Sum\r\n\r\n2\r\nok\r\n0\r\nSum: 7\r\n\r\n")
	})
	resp, err := newPool(t, Config{}).Do(limited(t), get(s.addr))
	require.NoError(t, err)
	_, err = io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "7", resp.Trailer.Get("Sum"))
}

func TestACutBodyIsAnError(t *testing.T) {
	for name, answer := range map[string]string{
		"length":            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok",
		"chunk":             "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nok",
		"no last chunk":     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
		"in the trailers":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nSum: ",
		"malformed chunk":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\nzz\r\n",
		"chunk too long":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nok\r\n0\r\n\r\n",
		"without last line": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n",
	} {
		s := serve(t, func(c *peer) { c.read(); c.say(answer) })
		resp, err := newPool(t, Config{}).Do(limited(t), get(s.addr))
		require.NoError(t, err, name)
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("%s: no error", name)
		}
		require.NoError(t, resp.Body.Close())
	}
}

// Every stage a request can be in, and how the server keeps it there.
func TestEndingTheContextEndsEveryStageAtOnce(t *testing.T) {
	big := bytes.Repeat([]byte("x"), 32<<20)
	for name, tt := range map[string]struct {
		serve func(c *peer, arrived func())
		req   func(addr string) *Request
	}{
		"sending": {
			func(c *peer, arrived func()) { _, _ = c.in.ReadString('\n'); arrived(); c.wait() },
			func(addr string) *Request { r := post(addr, ""); r.Body = big; return r },
		},
		"waiting for the head": {
			func(c *peer, arrived func()) { c.read(); arrived(); c.wait() }, get,
		},
		"in the middle of the head": {
			func(c *peer, arrived func()) { c.read(); c.say("HTTP/1.1 200 OK\r\nA:"); arrived(); c.wait() }, get,
		},
		"after an informational answer": {
			func(c *peer, arrived func()) { c.read(); c.say("HTTP/1.1 103 Early\r\n\r\n"); arrived(); c.wait() }, get,
		},
		"in the body": {
			func(c *peer, arrived func()) {
				c.read()
				c.say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok")
				arrived()
				c.wait()
			}, get,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(limited(t))
			var left time.Time
			gone := make(chan struct{})
			s := serve(t, func(c *peer) {
				defer close(gone)
				tt.serve(c, func() { left = time.Now(); cancel() })
			})
			p := newPool(t, Config{})
			resp, err := p.Do(ctx, tt.req(s.addr))
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				require.Error(t, err)
				require.NoError(t, resp.Body.Close())
			} else {
				require.ErrorIs(t, err, context.Canceled)
			}
			<-gone
			t.Logf("ended after %v", time.Since(left))
			require.Less(t, time.Since(left), 2*time.Second)
			require.Equal(t, 0, p.kept())
		})
	}
}

// wait returns when the client has closed.
func (p *peer) wait() {
	if !p.untilClosed() {
		p.t.Error("the client did not close its connection")
	}
}

func TestEndingTheContextEndsADial(t *testing.T) {
	ctx, cancel := context.WithCancel(limited(t))
	p := newPool(t, Config{Dial: func(ctx context.Context, _ string) (net.Conn, error) {
		cancel()
		<-ctx.Done()
		return nil, errors.New("interrupted")
	}})
	_, err := p.Do(ctx, get("a"))
	require.ErrorIs(t, err, context.Canceled)
}

func TestADialIsBounded(t *testing.T) {
	p := newPool(t, Config{DialTimeout: time.Millisecond, Dial: func(ctx context.Context, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	_, err := p.Do(limited(t), get("a"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestAnEndedContextSendsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(limited(t))
	s := serve(t, func(c *peer) { c.read(); c.say(ok2); _, _ = io.Copy(io.Discard, c.in) })
	p := newPool(t, Config{})
	fetch(t, p, get(s.addr))
	cancel()
	_, err := p.Do(ctx, get(s.addr))
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, s.accepted(), "not repeated on a fresh connection either")
}

func TestAnEarlyAnswerToAnUnreadBodyIsTheAnswer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	}))
	defer s.Close()
	addr := s.Listener.Addr().String()
	big := strings.Repeat("x", 32<<20)
	p := newPool(t, Config{})
	status, _ := fetch(t, p, post(addr, big))
	require.Equal(t, http.StatusRequestEntityTooLarge, status)

	req := post(addr, "")
	req.Body, req.Stream, req.Length = nil, strings.NewReader(big), int64(len(big))
	status, _ = fetch(t, p, req)
	require.Equal(t, http.StatusRequestEntityTooLarge, status)
	require.Equal(t, 0, p.kept(), "the server still waits for the rest of a body there")
}

var errClientLeft = errors.New("client left")

// failing is a body whose second read fails.
func failing() io.Reader { return io.MultiReader(strings.NewReader("abc"), failure{}) }

type failure struct{}

func (failure) Read([]byte) (int, error) { return 0, errClientLeft }

// The server waits for the rest of the body, so nobody may wait for the server.
func TestAStreamedBodyThatFailsEndsTheRequestAtOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		stream io.Reader
		length int64
		cause  error
	}{
		"fails, length":     {failing(), 100, errClientLeft},
		"fails, chunked":    {failing(), -1, errClientLeft},
		"ends before":       {strings.NewReader("abc"), 100, io.ErrUnexpectedEOF},
		"fails after 64 KB": {io.MultiReader(strings.NewReader(strings.Repeat("x", 64<<10)), failure{}), 1 << 20, errClientLeft},
	} {
		t.Run(name, func(t *testing.T) {
			closed := make(chan bool, 1)
			s := serve(t, func(c *peer) { closed <- c.untilClosed() })
			req := post(s.addr, "")
			req.Body, req.Stream, req.Length = nil, tt.stream, tt.length
			_, err := newPool(t, Config{}).Do(limited(t), req)
			require.ErrorIs(t, err, ErrBody)
			require.ErrorIs(t, err, tt.cause)
			require.True(t, <-closed)
		})
	}
}

func TestAProtocolSwitchHandsTheConnectionOver(t *testing.T) {
	s := serve(t, func(c *peer) {
		c.read()
		c.say("HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\nread ahead,")
		line, _ := c.in.ReadString('\n')
		c.say(line)
	})
	p := newPool(t, Config{})
	req := get(s.addr)
	req.Upgrade = "echo"
	resp, err := p.Do(limited(t), req)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	conn, ahead := resp.Hijack()
	require.NoError(t, resp.Body.Close(), "no longer the response's")
	_, err = io.WriteString(conn, "echoed\n")
	require.NoError(t, err)
	got, err := io.ReadAll(ahead)
	require.NoError(t, err)
	require.Equal(t, "read ahead,echoed\n", string(got))
	require.NoError(t, conn.Close())
	require.Equal(t, 0, p.kept())
}

func TestARefusedProtocolSwitchIsAnOrdinaryAnswer(t *testing.T) {
	s := serve(t, func(c *peer) {
		for range 2 {
			c.read()
			c.say(ok2)
		}
	})
	p := newPool(t, Config{})
	req := get(s.addr)
	req.Upgrade = "echo"
	_, body := fetch(t, p, req)
	require.Equal(t, "ok", body)
	fetch(t, p, get(s.addr))
	require.Equal(t, 1, s.accepted())
}

// FuzzResponse feeds what an engine may send. The property: no panic, an answer
// that is handed out has a status a server may pass on, and its body is never
// longer than what was sent.
func FuzzResponse(f *testing.F) {
	for _, s := range []string{
		ok2, "HTTP/1.1 100 Continue\r\n\r\n" + ok2, "HTTP/1.0 200\r\n\r\nx", "HTTP/1.1 204 x\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;x=y\r\no\r\n0\r\nA: b\r\n\r\n", "HTTP/1.1 999 x\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		p := NewPool(Config{Dial: func(context.Context, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				defer func() { _ = far.Close() }()
				buf := make([]byte, 4<<10)
				if _, err := far.Read(buf); err == nil {
					_, _ = far.Write(answer)
				}
			}()
			return near, nil
		}})
		defer p.Close()
		resp, err := p.Do(t.Context(), get("a"))
		if err != nil {
			return
		}
		if resp.StatusCode < 200 || resp.StatusCode > 999 {
			t.Errorf("%q: status %d", answer, resp.StatusCode)
		}
		body, _ := io.ReadAll(resp.Body)
		if len(body) > len(answer) {
			t.Errorf("%q: body of %d bytes", answer, len(body))
		}
		_ = resp.Body.Close()
	})
}
