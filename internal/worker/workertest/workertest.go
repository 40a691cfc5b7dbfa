// SPDX-License-Identifier: Apache-2.0

// Package workertest plays the broker's end of a worker's link, line by line.
//
// [Start] runs a worker over a pipe in memory and reads what it announces; the [Peer] it returns sends frames, reads
// those that come back and hangs up. [NewPeer] is a Peer on a link that the test has made itself, which may be any of
// the tree: a broker's to its client, or one to a worker that the test plays. A suite that needs more embeds a Peer.
//
// Frames are compared to the letter, and none may be left out: what the far end writes is read in the order in which it
// was written, so a frame that nobody expected fails the next expectation. A wait for a frame ends after
// [Peer.Patience]. That is time of a synctest bubble where the test is in one, so a frame that never comes costs
// nothing there; outside, the same waits are real. Only [Peer.Idle] needs a bubble.
//
// The methods fail the test and are called from its goroutine alone.
package workertest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/applog/applogtest"
	"nvpair/internal/worker"
)

// Version is that of a worker under test.
const Version = "1.2.3"

// The frames that announce a worker. One with [worker.Config.NoReady] has only the second.
const (
	Ready = `{"jsonrpc":"2.0","method":"ready","params":{"version":"` + Version + `"}}`
	Hello = `{"jsonrpc":"2.0","method":"worker/hello","params":{"liveness":1,"version":"` + Version + `"}}`
)

// Peer is the far end of a link.
type Peer struct {
	Conn  net.Conn
	Lines *bufio.Reader      // of Conn
	Log   *applogtest.Buffer // of the worker; nil where the test has made the link

	Patience  time.Duration // how long a frame may take; a minute until it is changed
	SkipEmpty bool          // pass over empty lines, which end frames that were torn

	t     testing.TB
	pings int
	ended chan struct{} // closed when the worker has ended; nil where there is none
	err   error         // what the worker's run returned; read once ended is closed
}

// NewPeer returns a peer on conn, which is closed at the end of the test at the latest.
func NewPeer(t testing.TB, conn net.Conn) *Peer {
	t.Cleanup(func() { _ = conn.Close() })
	return &Peer{Conn: conn, Lines: bufio.NewReaderSize(conn, 64<<10), Patience: time.Minute, t: t}
}

// Start runs a worker of that process name and reads the two frames that announce it.
func Start(t testing.TB, process string, run func(context.Context, worker.Config) error) *Peer {
	t.Helper()
	p := Launch(t, process, run)
	p.Expect(Ready, Hello)
	return p
}

// Launch is Start without a look at what comes first. run gets a debug log and its end of the link; it has ended when
// the test has.
func Launch(t testing.TB, process string, run func(context.Context, worker.Config) error) *Peer {
	t.Helper()
	ours, theirs := net.Pipe()
	p := NewPeer(t, ours)
	p.ended = make(chan struct{})
	cfg := worker.Config{Link: theirs, Version: Version}
	cfg.Log, cfg.Level, p.Log = applogtest.New(process)
	go func() {
		defer close(p.ended)
		p.err = run(t.Context(), cfg)
		_ = theirs.Close() // a run that failed has not taken it over
	}()
	t.Cleanup(func() { _ = p.Stop() })
	return p
}

// Stop ends the worker's input and returns what its run returned.
func (p *Peer) Stop() error {
	_ = p.Conn.Close()
	return p.Wait()
}

// Wait returns what the worker's run returned, once it has.
func (p *Peer) Wait() error {
	if p.ended != nil {
		<-p.ended
	}
	return p.err
}

// Send writes frames.
func (p *Peer) Send(frames ...string) {
	p.t.Helper()
	for _, frame := range frames {
		_, err := io.WriteString(p.Conn, frame+"\n")
		require.NoError(p.t, err)
	}
}

// Notify sends a notification; params may be empty for none.
func (p *Peer) Notify(method, params string) {
	p.t.Helper()
	p.Send(Notification(method, params))
}

// Call sends a request and returns its answer, which must be the next frame, without the envelope: {"result":...} or
// {"error":...}.
func (p *Peer) Call(method, params string) string {
	p.t.Helper()
	p.Send(Request(7, method, params))
	answer, ok := strings.CutPrefix(p.Next(), `{"jsonrpc":"2.0","id":7,`)
	require.True(p.t, ok, "no answer to %s: %s", method, answer)
	return "{" + answer
}

// Next returns the next frame.
func (p *Peer) Next() string {
	p.t.Helper()
	for {
		_ = p.Conn.SetReadDeadline(time.Now().Add(p.Patience)) // fails when the far end is closed, as the read will
		line, err := p.Lines.ReadString('\n')
		_ = p.Conn.SetReadDeadline(time.Time{})
		require.NoError(p.t, err, "after %q", line)
		if line = strings.TrimSuffix(line, "\n"); line != "" || !p.SkipEmpty {
			return line
		}
	}
}

// Expect requires the next frames to be these.
func (p *Peer) Expect(frames ...string) {
	p.t.Helper()
	for _, frame := range frames {
		require.Equal(p.t, frame, p.Next())
	}
}

// Event requires the next frame to be a notification of that method, and decodes its params.
func (p *Peer) Event(method string, params any) {
	p.t.Helper()
	frame := p.Next()
	var f struct {
		Method string
		Params json.RawMessage
	}
	require.NoError(p.t, json.Unmarshal([]byte(frame), &f), frame)
	require.Equal(p.t, method, f.Method, frame)
	require.NoError(p.t, json.Unmarshal(f.Params, params), frame)
}

// Quiet requires that the worker is alive, has handled what was sent and has written nothing but what was read. A
// snapshot is written behind what is queued with it, so it takes a second ping to be sure that none is pending.
func (p *Peer) Quiet() {
	p.t.Helper()
	for range 2 {
		p.pings++
		p.Notify("worker/ping", fmt.Sprintf(`{"seq":%d}`, p.pings))
		p.Expect(Notification("worker/pong", fmt.Sprintf(`{"seq":%d}`, p.pings)))
	}
}

// Idle requires that nothing is on its way, once nothing moves any more. It is for a far end that answers no pings, in
// a bubble.
func (p *Peer) Idle() {
	p.t.Helper()
	synctest.Wait()
	require.NoError(p.t, p.Conn.SetReadDeadline(time.Now().Add(time.Nanosecond)))
	line, err := p.Lines.ReadString('\n')
	require.ErrorIs(p.t, err, os.ErrDeadlineExceeded, "got %q", line)
	require.Empty(p.t, line)
	require.NoError(p.t, p.Conn.SetReadDeadline(time.Time{}))
}

// Closed requires that the far end hangs up without another byte.
func (p *Peer) Closed() {
	p.t.Helper()
	_ = p.Conn.SetReadDeadline(time.Now().Add(p.Patience)) // fails when it has already
	b, err := p.Lines.ReadByte()
	require.ErrorIs(p.t, err, io.EOF, "got %q", b)
}

// Play plays a script of testdata: lines with > are sent, lines with < must come back in that order, others are
// comments. Before each frame that is sent it calls before, if that is not nil; after the last line the worker must be
// quiet.
func (p *Peer) Play(name string, before func()) {
	p.t.Helper()
	script, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(p.t, err)
	for line := range strings.Lines(string(script)) {
		switch frame := strings.TrimSpace(line[1:]); line[0] {
		case '>':
			if before != nil {
				before()
			}
			p.Send(frame)
		case '<':
			p.Expect(frame)
		}
	}
	p.Quiet()
}

// Request is a request's frame; params may be empty for none.
func Request(id int, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q%s}`, id, method, member(params))
}

// Notification is a notification's frame; params may be empty for none.
func Notification(method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":%q%s}`, method, member(params))
}

func member(params string) string {
	if params == "" {
		return ""
	}
	return `,"params":` + params
}
