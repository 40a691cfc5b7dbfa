// SPDX-License-Identifier: Apache-2.0

package jsonrpc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// served is a Conn whose Run is under way.
type served struct {
	*Conn
	cancel context.CancelFunc
	ended  chan struct{} // closed when Run has returned
	err    error         // what it returned
}

// serve runs a Conn over rwc until the test ends at the latest.
func serve(t testing.TB, rwc io.ReadWriteCloser, cfg Config) *served {
	t.Helper()
	if cfg.Handle == nil {
		cfg.Handle = func(*Request) {}
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := &served{Conn: New(rwc, cfg), cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		s.err = s.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-s.ended
	})
	return s
}

// wait returns the error of Run once it has returned.
func (s *served) wait() error {
	<-s.ended
	return s.err
}

// unserved is a Conn that is never run: its queue is looked at instead, and
// dispatch stands for the read loop.
func unserved(cfg Config) *Conn {
	if cfg.Handle == nil {
		cfg.Handle = func(*Request) {}
	}
	return New(nil, cfg)
}

// queued returns the frames in the out-queue of a Conn that does not run.
func queued(c *Conn) []string {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return strings.SplitAfter(strings.TrimSuffix(string(c.out.buf), "\n"), "\n")
}

// waiting returns how many calls the Conn remembers.
func waiting(c *Conn) int {
	c.calls.mu.Lock()
	defer c.calls.mu.Unlock()
	return len(c.calls.waiting)
}

// rawPeer is the far end of a link, played by the test byte for byte.
type rawPeer struct {
	t testing.TB
	io.ReadWriteCloser
	lines *bufio.Reader
}

// serveRaw runs a Conn over net.Pipe and returns it with the other end.
func serveRaw(t testing.TB, cfg Config) (*served, *rawPeer) {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { _ = far.Close() })
	return serve(t, near, cfg), newRawPeer(t, far)
}

func newRawPeer(t testing.TB, rwc io.ReadWriteCloser) *rawPeer {
	return &rawPeer{t: t, ReadWriteCloser: rwc, lines: bufio.NewReader(rwc)}
}

// send writes lines, each with its newline.
func (p *rawPeer) send(lines ...string) {
	p.t.Helper()
	for _, line := range lines {
		_, err := io.WriteString(p, line+"\n")
		require.NoError(p.t, err)
	}
}

// line returns the next line without its newline.
func (p *rawPeer) line() string {
	p.t.Helper()
	line, err := p.lines.ReadString('\n')
	require.NoError(p.t, err, "after %q", line)
	return strings.TrimSuffix(line, "\n")
}

// rest returns everything up to the end of input.
func (p *rawPeer) rest() string {
	p.t.Helper()
	b, err := io.ReadAll(p.lines)
	require.NoError(p.t, err)
	return string(b)
}

// duplex is a link end over two one-way streams, as standard input and output are.
type duplex struct {
	io.ReadCloser
	out io.WriteCloser
}

func (d duplex) Write(b []byte) (int, error) { return d.out.Write(b) }
func (d duplex) CloseWrite() error           { return d.out.Close() }
func (d duplex) Close() error                { return errors.Join(d.out.Close(), d.ReadCloser.Close()) }

// osPipes returns the two ends of a link over two pipes of the system.
func osPipes(t testing.TB) (near, far duplex) {
	t.Helper()
	nearIn, farOut, err := os.Pipe()
	require.NoError(t, err)
	farIn, nearOut, err := os.Pipe()
	require.NoError(t, err)
	near, far = duplex{nearIn, nearOut}, duplex{farIn, farOut}
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return near, far
}

// memoryPipes is osPipes without the system, for synctest bubbles.
func memoryPipes() (near, far duplex) {
	nearIn, farOut := io.Pipe()
	farIn, nearOut := io.Pipe()
	return duplex{nearIn, nearOut}, duplex{farIn, farOut}
}

// faultyConn is a connection whose writes the test answers.
type faultyConn struct {
	net.Conn
	write func([]byte) (int, error)
}

func (f *faultyConn) Write(b []byte) (int, error) { return f.write(b) }

// fakeLog remembers what is logged.
type fakeLog struct {
	mu      sync.Mutex // guards records
	records []fakeRecord
}

type fakeRecord struct {
	at      time.Time
	message string
	attrs   map[string]any
}

func (l *fakeLog) logger() *slog.Logger                     { return slog.New(l) }
func (l *fakeLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *fakeLog) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *fakeLog) WithGroup(string) slog.Handler            { return l }

func (l *fakeLog) Handle(_ context.Context, r slog.Record) error {
	record := fakeRecord{at: r.Time, message: r.Message, attrs: map[string]any{}}
	r.Attrs(func(a slog.Attr) bool {
		record.attrs[a.Key] = a.Value.Any()
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, record)
	return nil
}

func (l *fakeLog) all() []fakeRecord {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]fakeRecord(nil), l.records...)
}

// echo answers every request with its params.
func echo(r *Request) { r.Reply(r.Params) }

// paramsOf returns the params of a frame as text.
func paramsOf(t testing.TB, line string) string {
	t.Helper()
	f, err := parseFrame([]byte(line))
	require.NoError(t, err, line)
	return string(f.Params)
}

// raw turns text into a raw message, and "" into an absent one.
func rawJSON(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}
