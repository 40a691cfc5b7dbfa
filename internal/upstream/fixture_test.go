// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second // for what must happen; nothing waits for it when all is well

// server is a TCP server whose connections a script serves, in the order in
// which they come. A connection beyond the scripts fails the test.
type server struct {
	t    *testing.T
	addr string

	mu    sync.Mutex // guards conns
	conns []net.Conn
}

// script serves one connection, which is closed when it returns.
type script func(c *peer)

// peer is the server's end of one connection.
type peer struct {
	net.Conn
	t  *testing.T
	in *bufio.Reader
}

// read takes one request off the connection, its body included.
func (p *peer) read() (*http.Request, string) {
	req, err := http.ReadRequest(p.in)
	if err != nil {
		p.t.Errorf("read request: %v", err)
		return &http.Request{}, ""
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		p.t.Errorf("read request body: %v", err)
	}
	return req, string(body)
}

// say writes to the client; a client that is gone is no fault of the script.
func (p *peer) say(s string) { _, _ = io.WriteString(p, s) }

// untilClosed waits for the client's close and reports whether it came.
func (p *peer) untilClosed() bool {
	_ = p.SetReadDeadline(time.Now().Add(patience))
	_, err := io.Copy(io.Discard, p.in)
	ne, timeout := err.(net.Error)
	return !timeout || !ne.Timeout()
}

// serve starts a server with one script for each connection.
func serve(t *testing.T, scripts ...script) *server {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &server{t: t, addr: ln.Addr().String()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ; n++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, c)
			s.mu.Unlock()
			if n >= len(scripts) {
				t.Errorf("connection %d was not expected", n+1)
				_ = c.Close()
				continue
			}
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				scripts[n](&peer{Conn: c, t: t, in: bufio.NewReader(c)})
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		s.mu.Lock()
		for _, c := range s.conns {
			_ = c.Close()
		}
		s.mu.Unlock()
		wg.Wait()
	})
	return s
}

// accepted is how many connections have come.
func (s *server) accepted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

func newPool(t testing.TB, cfg Config) *Pool {
	p := NewPool(cfg)
	t.Cleanup(p.Close)
	return p
}

// limited is a context that ends a test that hangs.
func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func get(addr string) *Request {
	return &Request{Addr: addr, Host: addr, Method: http.MethodGet, Target: "/"}
}

func post(addr, body string) *Request {
	return &Request{Addr: addr, Host: addr, Method: http.MethodPost, Target: "/", Body: []byte(body)}
}

// fetch sends a request and returns the status and the body of its answer.
func fetch(t *testing.T, p *Pool, req *Request) (int, string) {
	t.Helper()
	resp, err := p.Do(limited(t), req)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode, string(body)
}
