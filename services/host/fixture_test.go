// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"nvpair/internal/applog"
	"nvpair/internal/supervise"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience ends a wait for a frame. Most tests wait in a synctest bubble, where a
// frame that never comes costs nothing.
const patience = time.Minute

// shared is a hub whose broker and clients are played by the test, line by line.
type shared struct {
	*hub
	t       *testing.T
	ctx     context.Context // of the hub
	log     *lockedBuffer
	out     *lockedBuffer
	clients chan net.Conn // to be accepted; unbuffered
}

// share runs a hub without a broker in a synctest bubble.
func share(t *testing.T) *shared {
	t.Helper()
	ln := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	s := shareOn(t, ln)
	s.clients = ln.conns
	return s
}

func shareOn(t *testing.T, ln net.Listener) *shared {
	t.Helper()
	ctx, stop := context.WithCancelCause(t.Context())
	s := &shared{t: t, ctx: ctx, log: new(lockedBuffer), out: new(lockedBuffer)}
	level := new(slog.LevelVar)
	level.Set(slog.LevelDebug)
	s.hub = newHub(serveConfig{
		Out: s.out, Err: io.Discard, DataDir: "/data", Policy: brokerPolicy(),
		Log: slog.New(applog.NewHandler(s.log, name, level)),
	}, ln, stop)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.run(ctx)
		s.announced.Wait()
	}()
	t.Cleanup(func() {
		stop(nil)
		<-ended
	})
	return s
}

// connect returns a new client.
func (s *shared) connect() *peer {
	s.t.Helper()
	near, far := net.Pipe()
	s.clients <- near
	synctest.Wait()
	return newPeer(s.t, far)
}

// enter returns a new client that was told that the broker is ready.
func (s *shared) enter() *peer {
	s.t.Helper()
	c := s.connect()
	c.expect(readyFrame)
	return c
}

const readyFrame = `{"jsonrpc":"2.0","method":"app:ready","params":{"version":"1.2.3"}}`

// fakeBroker is one broker process, played by the test.
type fakeBroker struct {
	*peer
	link  *brokerLink
	ended chan struct{} // closed when Serve has returned
}

// attach connects a broker that is not ready yet.
func (s *shared) attach() *fakeBroker {
	near, far := net.Pipe()
	b := &fakeBroker{peer: newPeer(s.t, far), ended: make(chan struct{})}
	b.link = newBrokerLink(s.hub, &supervise.Process{Generation: 1}, near)
	go func() {
		defer close(b.ended)
		b.link.Serve(s.ctx)
	}()
	s.t.Cleanup(b.leave)
	return b
}

// brokerCalls is how many calls the hub makes when a broker is ready.
const brokerCalls = 6

// serveBroker connects a broker that is ready.
func (s *shared) serveBroker() *fakeBroker {
	s.t.Helper()
	b := s.attach()
	b.send(readyFrame)
	for i, ns := range []string{"discovery", "engine", "workloads", "ollama-proxy", "lmstudio-proxy"} {
		b.expect(request(i+1, ns+":subscribe", ""))
		b.send(result(i+1, `{"subscribed":true}`))
	}
	b.expect(request(brokerCalls, "broker:status", ""))
	b.send(result(brokerCalls, `{"version":"1.2.3","nodeId":"n-1","workers":[{"state":"running"},{"state":"absent"},{"state":"failed"}]}`))
	return b
}

func (b *fakeBroker) leave() {
	_ = b.conn.Close()
	<-b.ended
}

// answer takes the next request, which must be this one, and answers it.
func (b *fakeBroker) answer(id int, method, params, value string) {
	b.t.Helper()
	b.expect(request(id, method, params))
	b.send(result(id, value))
}

// peer is the far end of a link.
type peer struct {
	t     *testing.T
	conn  net.Conn
	lines *bufio.Reader
}

func newPeer(t *testing.T, conn net.Conn) *peer {
	t.Cleanup(func() { _ = conn.Close() })
	return &peer{t: t, conn: conn, lines: bufio.NewReaderSize(conn, 64<<10)}
}

func (p *peer) send(lines ...string) {
	p.t.Helper()
	for _, line := range lines {
		_, err := io.WriteString(p.conn, line+"\n")
		require.NoError(p.t, err)
	}
}

func (p *peer) line() string {
	p.t.Helper()
	require.NoError(p.t, p.conn.SetReadDeadline(time.Now().Add(patience)))
	line, err := p.lines.ReadString('\n')
	require.NoError(p.t, err, "after %q", line)
	return strings.TrimSuffix(line, "\n")
}

func (p *peer) expect(want ...string) {
	p.t.Helper()
	for _, w := range want {
		require.Equal(p.t, w, p.line())
	}
}

// call sends a request and returns the answer, which must be the next line,
// without its envelope.
func (p *peer) call(method, params string) string {
	p.t.Helper()
	p.send(request(7, method, params))
	answer, ok := strings.CutPrefix(p.line(), `{"jsonrpc":"2.0","id":7,`)
	require.True(p.t, ok, "no answer to %s: %s", method, answer)
	return strings.TrimSuffix(answer, "}")
}

// quiet requires that nothing is on its way.
func (p *peer) quiet() {
	p.t.Helper()
	synctest.Wait()
	require.NoError(p.t, p.conn.SetReadDeadline(time.Now().Add(time.Nanosecond)))
	line, err := p.lines.ReadString('\n')
	require.ErrorIs(p.t, err, os.ErrDeadlineExceeded, "got %q", line)
}

// closed requires that the hub hangs up without another byte.
func (p *peer) closed() {
	p.t.Helper()
	_ = p.conn.SetReadDeadline(time.Now().Add(patience)) // fails if it has already
	_, err := p.lines.ReadByte()
	require.ErrorIs(p.t, err, io.EOF)
}

func request(id int, method, params string) string {
	if params == "" {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q}`, id, method)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params)
}

func notification(method, params string) string {
	if params == "" {
		return fmt.Sprintf(`{"jsonrpc":"2.0","method":%q}`, method)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s}`, method, params)
}

func result(id int, value string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, id, value)
}

func failure(id int, message string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"code":-32000,"message":%q}}`, id, message)
}

// pipeListener accepts what a test hands it.
type pipeListener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "/run/n.sock", Net: "unix"} }

// lockedBuffer may be read while others write.
type lockedBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
