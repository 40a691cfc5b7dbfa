// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/applog/applogtest"
)

const get = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n"

// ok answers "ok".
func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

// pipeListener accepts the far ends of connections in memory.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }
func (l *pipeListener) dial() net.Conn {
	near, far := net.Pipe()
	l.conns <- far
	return near
}

// inBubble runs a test of times in a bubble, with a server on a pipe.
func inBubble(t *testing.T, s *Server, test func(t *testing.T, l *pipeListener)) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		var serving sync.WaitGroup
		serving.Go(func() { _ = s.Serve(l) })
		test(t, l)
		require.NoError(t, s.Close())
		serving.Wait()
	})
}

// untilEnd returns how long the server leaves a connection open, and what it says.
func untilEnd(nc net.Conn) (time.Duration, string) {
	began := time.Now()
	said, _ := io.ReadAll(nc)
	return time.Since(began), string(said)
}

func TestASilentConnectionIsClosedAfterItsTime(t *testing.T) {
	s := &Server{Handler: http.HandlerFunc(ok), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 90 * time.Second}
	inBubble(t, s, func(t *testing.T, l *pipeListener) {
		for _, tt := range []struct {
			name, said string
			least      time.Duration
			most       time.Duration
		}{
			{"nothing sent", "", 10 * time.Second, 10 * time.Second},
			{"half a head", get[:20], 10 * time.Second, 10 * time.Second},
			{"after a request", get, 90 * time.Second, 90 * time.Second},
			{"half a second head", get + get[:20], 10 * time.Second, 10 * time.Second},
		} {
			nc := l.dial()
			go func() { _, _ = io.WriteString(nc, tt.said) }()
			took, _ := untilEnd(nc)
			require.GreaterOrEqual(t, took, tt.least, tt.name)
			require.LessOrEqual(t, took, tt.most, tt.name)
		}
	})
}

func TestAParkedConnectionServesOn(t *testing.T) {
	s := &Server{Handler: http.HandlerFunc(ok), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 90 * time.Second}
	inBubble(t, s, func(t *testing.T, l *pipeListener) {
		c := client{t, l.dial(), nil}
		defer func() { _ = c.Close() }()
		c.in = newReader(c.Conn)
		for _, pause := range []time.Duration{0, time.Second, 3 * time.Second, 89 * time.Second, 0} {
			<-time.After(pause)
			c.say(get)
			_, body := c.answer("GET")
			require.Equal(t, "ok", body)
		}
	})
}

func TestABodyMayTakeLongerThanAnyDeadlineOfTheConnection(t *testing.T) {
	s := &Server{ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 90 * time.Second, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil || r.Context().Err() != nil {
				t.Error(err, r.Context().Err())
			}
			<-time.After(5 * time.Minute)
			_, _ = w.Write(body)
		})}
	inBubble(t, s, func(t *testing.T, l *pipeListener) {
		c := client{t, l.dial(), nil}
		defer func() { _ = c.Close() }()
		c.in = newReader(c.Conn)
		for range 2 {
			c.say("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\na")
			<-time.After(5 * time.Minute)
			c.say("b")
			_, body := c.answer("POST")
			require.Equal(t, "ab", body)
		}
	})
}

func TestDeadlinesOfAHandlerEndWithItsRequest(t *testing.T) {
	s := &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if r.URL.Path == "/a" {
			require.NoError(t, rc.SetReadDeadline(time.Now().Add(time.Second)))
			require.NoError(t, rc.SetWriteDeadline(time.Now().Add(time.Second)))
		} else {
			<-time.After(10 * time.Second)
			require.NoError(t, r.Context().Err())
		}
		_, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		ok(w, r)
	})}
	inBubble(t, s, func(t *testing.T, l *pipeListener) {
		c := client{t, l.dial(), nil}
		defer func() { _ = c.Close() }()
		c.in = newReader(c.Conn)
		for _, said := range []string{get, "POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx", get, strings.Replace(get, "/a", "/b", 1)} {
			c.say(said)
			_, body := c.answer("GET")
			require.Equal(t, "ok", body)
			<-time.After(5 * time.Second)
		}
	})
}

func TestAWriteDeadlineEndsAResponseNobodyReads(t *testing.T) {
	ended := make(chan error, 1)
	addr := serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		for {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				ended <- errors.Join(err, r.Context().Err())
				return
			}
		}
	})})
	dial(t, addr).say(get)
	select {
	case err := <-ended:
		require.ErrorIs(t, err, context.Canceled, "who cannot be written to has left")
	case <-time.After(patience):
		t.Fatal("write goes on")
	}
}

func TestShutdownClosesIdleConnectionsAndWaitsForRunningRequests(t *testing.T) {
	running, release := make(chan struct{}), make(chan struct{})
	s := &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			close(running)
			<-release
		}
		ok(w, r)
	})}
	addr := serve(t, s)
	idle, busy := dial(t, addr), dial(t, addr)
	idle.say(get)
	idle.answer("GET")
	busy.say("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n")
	await(t, "the request", running)

	soon, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Shutdown(soon), context.DeadlineExceeded)
	require.True(t, idle.ended())
	_, err := net.DialTimeout("tcp", addr, patience)
	require.Error(t, err, "the port is closed")

	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	close(release)
	resp, body := busy.answer("GET")
	require.Equal(t, "ok", body)
	require.True(t, resp.Close, "the client is told")
	require.True(t, busy.ended())
	await(t, "the end of Shutdown", done)
	require.ErrorIs(t, s.Serve(newPipeListener()), http.ErrServerClosed)
}

func TestShutdownGivesAFreshConnectionFiveSeconds(t *testing.T) {
	s := &Server{Handler: http.HandlerFunc(ok)}
	inBubble(t, s, func(t *testing.T, l *pipeListener) {
		nc := l.dial()
		synctest.Wait()
		began := time.Now()
		require.NoError(t, s.Shutdown(t.Context()))
		require.Equal(t, freshGrace, time.Since(began))
		_ = nc.Close()
	})
}

type key struct{}

func TestTheEndOfTheBaseContextEndsEveryRequest(t *testing.T) {
	base, end := context.WithCancelCause(context.WithValue(context.Background(), key{}, "value"))
	running, ended := make(chan struct{}), make(chan struct{})
	addr := serve(t, &Server{BaseContext: base, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Context().Value(key{}) != "value" || r.Context().Value(http.LocalAddrContextKey) == nil {
			t.Error("values are missing")
		}
		child, cancel := context.WithCancel(r.Context())
		defer cancel()
		close(running)
		<-child.Done()
		close(ended)
	})})
	dial(t, addr).say(get)
	await(t, "the request", running)
	end(errors.New("over"))
	await(t, "its end", ended)
}

func TestAHijackedConnectionComesWithWhatWasReadAhead(t *testing.T) {
	for _, slow := range []bool{false, true} {
		began := make(chan struct{})
		s := &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(began)
			c := w.(*response).c
			if slow { // so that the watcher has read a byte
				require.Eventually(t, func() bool {
					c.in.mu.Lock()
					defer c.in.mu.Unlock()
					return c.in.hasAhead
				}, patience, time.Millisecond)
			}
			nc, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = nc.Close() }()
			_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\n\r\n")
			_ = rw.Flush()
			_, _ = io.CopyN(rw, rw, 10)
			_ = rw.Flush()
			if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrHijacked) {
				t.Error(err)
			}
			if _, _, err := http.NewResponseController(w).Hijack(); !errors.Is(err, http.ErrHijacked) {
				t.Error(err)
			}
		})}
		c := dial(t, serve(t, s))
		if slow {
			c.say(get)
			await(t, "the request", began)
			c.say("0123")
		} else {
			c.say(get + "0123")
		}
		line, err := c.in.ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, line, "101")
		_, _ = c.in.ReadString('\n')
		c.say("456789")
		echoed := make([]byte, 10)
		_, err = io.ReadFull(c.in, echoed)
		require.NoError(t, err)
		require.Equal(t, "0123456789", string(echoed))
		require.True(t, c.ended())
	}
}

func TestAPanicIsLoggedAndCutsTheConnection(t *testing.T) {
	var log applogtest.Buffer
	for what, logged := range map[any]bool{"fault": true, http.ErrAbortHandler: false} {
		log.Reset()
		s := &Server{Log: slog.New(slog.NewTextHandler(&log, nil)), Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "part")
			panic(what)
		})}
		c := dial(t, serve(t, s))
		c.say(get)
		require.True(t, c.ended(), "nothing that looks like an answer")
		require.Equal(t, logged, strings.Contains(log.String(), "level=ERROR msg=\"handler panicked\""))
		require.Equal(t, logged, strings.Contains(log.String(), "server_test.go"))
	}
}

func TestAResponseWriterKeptTooLongMeetsNobodyElsesResponse(t *testing.T) {
	kept := make(chan http.ResponseWriter, 2)
	c := dial(t, serve(t, &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kept <- w
		ok(w, r)
	})}))
	c.say(get)
	c.answer("GET")
	c.say(get)
	c.answer("GET")
	w := <-kept
	_, err := io.WriteString(w, "late")
	require.ErrorIs(t, err, http.ErrHijacked)
	w.Header().Set("A", "b")
	w.WriteHeader(500)
	require.Error(t, http.NewResponseController(w).Flush())
	c.say(get)
	resp, body := c.answer("GET")
	require.Equal(t, "ok", body)
	require.Empty(t, resp.Header["A"])
}
