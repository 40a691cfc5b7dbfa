// SPDX-License-Identifier: Apache-2.0

package errors

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// realTime bounds waits for sockets, which no bubble can watch.
const realTime = 10 * time.Second

// boundPort matches the line that names the port.
var boundPort = regexp.MustCompile(`INFO peer endpoint bound addr=\S+:(\d+)\n`)

// startPeers runs refuseAll on a real port and returns the port's number.
func startPeers(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ln, err := listen(ctx, 0)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		refuseAll(ctx, ln, slog.New(slog.DiscardHandler))
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	return port
}

// hosts are the addresses at which a dual-stack listener answers here.
func hosts(t *testing.T) []string {
	t.Helper()
	all := []string{"127.0.0.1"}
	if ln, err := net.Listen("tcp6", "[::1]:0"); err == nil {
		_ = ln.Close()
		all = append(all, "::1")
	}
	return all
}

func TestEveryHandshakeIsRefused(t *testing.T) {
	port := startPeers(t)
	for _, host := range hosts(t) {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			d := tls.Dialer{
				NetDialer: &net.Dialer{Timeout: realTime},
				Config:    &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version},
			}
			conn, err := d.Dial("tcp", net.JoinHostPort(host, port))
			if err == nil {
				_ = conn.Close()
			}
			require.ErrorContains(t, err, "remote error: tls:", "%s, version %x", host, version) // an alert, no reset
		}
	}
}

func TestPlainBytesGetNoAnswer(t *testing.T) {
	port := startPeers(t)
	conn, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", port), realTime)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(realTime)))
	_, err = io.WriteString(conn, "GET /v1/errors HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	answer, err := io.ReadAll(conn)
	require.NotContains(t, string(answer), "HTTP")
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the connection stayed open")
}

func TestPeersAreAskedForAfterTheAnnouncement(t *testing.T) {
	c := start(t, Config{NodeID: "n-1", PeerSync: true})
	c.Expect(`{"jsonrpc":"2.0","method":"discovery:subscribe","params":{"services":["er"]}}`)
	c.Notify("discovery:nodes", `{"nodes":[{"hostUuid":"n-2","services":{"er":{"port":14319}},"ip":"127.0.0.1"}]}`)
	c.Quiet()
	require.NoError(t, c.Stop())
	require.Regexp(t, boundPort, c.Log.String())
}

// TestRunLeavesNothingOfThePeers has a peer that says nothing while the worker
// ends.
func TestRunLeavesNothingOfThePeers(t *testing.T) {
	c := start(t, Config{NodeID: "n-1", PeerSync: true})
	c.Next()                                              // subscribe
	match := boundPort.FindStringSubmatch(c.Log.String()) // written before the first frame
	require.NotNil(t, match, c.Log.String())
	port := match[1]
	conn, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", port), realTime)
	require.NoError(t, err)
	defer conn.Close()
	begin := time.Now()
	require.NoError(t, c.Stop())
	require.Less(t, time.Since(begin), handshakeTimeout-time.Second, "the silent peer held up the end")

	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	ln, err := listen(t.Context(), n)
	require.NoError(t, err, "the port is still bound")
	_ = ln.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(realTime)))
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the connection is still open")
}

// pipes is a listener whose connections are pipes. An error in place of a
// connection is what accept fails with.
type pipes struct {
	accept chan any
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case next := <-p.accept:
		if err, failed := next.(error); failed {
			return nil, err
		}
		return next.(net.Conn), nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// dial returns our end of a connection that has been accepted.
func (p *pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	p.accept <- theirs
	return ours
}

// inBubble runs story against refuseAll in a synctest bubble.
func inBubble(t *testing.T, story func(t *testing.T, p *pipes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{accept: make(chan any), closed: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			refuseAll(ctx, p, slog.New(slog.DiscardHandler))
		}()
		story(t, p)
		cancel()
		<-done
	})
}

func TestSilentConnectionsAreClosedInTime(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pipes) {
		begin := time.Now()
		conn := p.dial()
		_, err := conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, handshakeTimeout, time.Since(begin))
	})
}

func TestConnectionsBeyondTheBoundAreClosedAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pipes) {
		begin := time.Now()
		first := p.dial()
		for range maxHandshakes - 1 {
			p.dial()
		}
		_, err := p.dial().Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.Zero(t, time.Since(begin))

		_ = first.Close()
		synctest.Wait()
		_, err = p.dial().Read(make([]byte, 1)) // there is a place again
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, handshakeTimeout, time.Since(begin))
	})
}

// lingering is a connection that takes a second to close.
type lingering struct {
	net.Conn
	closed atomic.Bool
}

func (l *lingering) Close() error {
	<-time.After(time.Second)
	l.closed.Store(true)
	return l.Conn.Close()
}

func TestEndWaitsForTheLastConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{accept: make(chan any), closed: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		ours, theirs := net.Pipe()
		defer ours.Close()
		conn := &lingering{Conn: theirs}
		go func() {
			p.accept <- conn
			synctest.Wait() // until it waits for the first byte
			cancel()
		}()
		refuseAll(ctx, p, slog.New(slog.DiscardHandler))
		require.True(t, conn.closed.Load())
	})
}

func TestFailedAcceptsAreRetriedWithPauses(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pipes) {
		begin := time.Now()
		for range 3 {
			p.accept <- errors.New("too many open files")
		}
		_, err := p.dial().Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, 35*time.Millisecond+handshakeTimeout, time.Since(begin)) // 5, 10 and 20 ms
	})
}
