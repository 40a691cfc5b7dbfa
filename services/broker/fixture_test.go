// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"nvpair/internal/applog"
	"nvpair/internal/supervise"
	"nvpair/shared/engine"
)

func TestMain(m *testing.M) {
	if journal := os.Getenv(journalVar); journal != "" {
		playWorker(journal)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

const (
	nodeID  = "11111111-2222-3333-4444-555555555555"
	version = "1.2.3"
	// patience ends a wait for a frame. It is time of a synctest bubble, so a
	// frame that never comes costs nothing.
	patience = time.Minute
)

// tree is a broker whose client and workers are played by the test, line by
// line. It lives in a synctest bubble.
type tree struct {
	*Broker
	t      *testing.T
	client *peer
	log    *lockedBuffer
}

// plant serves a broker without workers and reads its first frame.
func plant(t *testing.T) *tree {
	t.Helper()
	tr := sow(t)
	tr.serve()
	require.Equal(t, notification("app:ready", `{"version":"1.2.3"}`), tr.client.line())
	return tr
}

// sow returns a broker that is not served yet.
func sow(t *testing.T) *tree {
	t.Helper()
	near, far := net.Pipe()
	log, level := newLog()
	cfg := Config{
		Client: near, Stderr: io.Discard, Version: version, NodeID: nodeID, DataDir: "/data", Engines: engine.All(),
		Log:   slog.New(applog.NewHandler(log, name, level)),
		Level: level,
	}
	cfg.setDefaults()
	_, stop := context.WithCancel(t.Context())
	return &tree{Broker: newBroker(cfg, stop), t: t, client: newPeer(t, far), log: log}
}

// serve runs the client's link until the test ends.
func (tr *tree) serve() {
	ctx, cancel := context.WithCancel(tr.t.Context())
	tr.Broker.stop = cancel
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tr.Broker.client.serve(ctx)
	}()
	tr.t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// incarnation is one process of a worker, played by the test.
type incarnation struct {
	*peer
	link  *workerLink
	ended chan struct{} // closed when Serve has returned
}

// join attaches an incarnation of a worker.
func (tr *tree) join(name string, generation int) *incarnation {
	tr.t.Helper()
	w := tr.byName[name]
	require.NotNil(tr.t, w, name)
	near, far := net.Pipe()
	p := &supervise.Process{Generation: generation, Path: "./" + w.binary, PID: 4711}
	in := &incarnation{peer: newPeer(tr.t, far), ended: make(chan struct{})}
	in.link = newWorkerLink(tr.Broker, w, p, near)
	go func() {
		defer close(in.ended)
		in.link.Serve(tr.t.Context())
	}()
	tr.t.Cleanup(in.leave)
	return in
}

// leave closes the worker's streams and waits until the broker has noticed.
func (in *incarnation) leave() {
	_ = in.conn.Close()
	<-in.ended
}

// crash does the same and reports it as a supervisor does.
func (tr *tree) crash(in *incarnation) {
	in.leave()
	tr.workerEnded(in.link.worker, "exit status 1")
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

// send writes lines.
func (p *peer) send(lines ...string) {
	p.t.Helper()
	for _, line := range lines {
		_, err := io.WriteString(p.conn, line+"\n")
		require.NoError(p.t, err)
	}
}

// line returns the next line, without its newline.
func (p *peer) line() string {
	p.t.Helper()
	require.NoError(p.t, p.conn.SetReadDeadline(time.Now().Add(patience)))
	line, err := p.lines.ReadString('\n')
	require.NoError(p.t, err, "after %q", line)
	return strings.TrimSuffix(line, "\n")
}

// expect requires the next lines to be these.
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

func failure(id int, value string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":%s}`, id, value)
}

// golden compares with a file of testdata.
func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join("testdata", file))
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "%s", file)
}

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

func newLog() (*lockedBuffer, *slog.LevelVar) {
	level := new(slog.LevelVar)
	level.Set(slog.LevelDebug)
	return new(lockedBuffer), level
}
