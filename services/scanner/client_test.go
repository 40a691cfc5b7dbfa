// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"nvpair/internal/applog"
	"nvpair/internal/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience ends a wait for a frame. It is time of a synctest bubble, so a frame
// that never comes costs nothing.
const patience = time.Minute

// client is the broker's end of the link of a running worker, in a synctest bubble.
type client struct {
	t     *testing.T
	conn  net.Conn
	lines *bufio.Reader
	pings int
	ended chan error   // what Run returned
	log   bytes.Buffer // to be read after stop
}

// start runs the worker with cfg and a link, and reads the two frames that
// announce it. The event of the own entry is next.
func start(t *testing.T, cfg Config) *client {
	t.Helper()
	c := launch(t, cfg)
	c.expect(`{"jsonrpc":"2.0","method":"ready","params":{"version":"1.2.3"}}`)
	c.expect(`{"jsonrpc":"2.0","method":"worker/hello","params":{"liveness":1,"version":"1.2.3"}}`)
	return c
}

func launch(t *testing.T, cfg Config) *client {
	t.Helper()
	ours, theirs := net.Pipe()
	c := &client{t: t, conn: ours, lines: bufio.NewReader(ours), ended: make(chan error, 1)}
	level := new(slog.LevelVar)
	level.Set(slog.LevelDebug)
	cfg.Config = worker.Config{
		Link:    theirs,
		Version: "1.2.3",
		Log:     slog.New(applog.NewHandler(&c.log, "nvpair-node-scanner", level)),
		Level:   level,
	}
	go func() {
		c.ended <- Run(t.Context(), cfg)
		_ = theirs.Close() // a Run that failed has not taken it over
	}()
	t.Cleanup(func() { _ = ours.Close() })
	return c
}

// stop ends the input and returns what Run returned.
func (c *client) stop() error {
	_ = c.conn.Close()
	return <-c.ended
}

func (c *client) send(frame string) {
	c.t.Helper()
	_, err := fmt.Fprintln(c.conn, frame)
	require.NoError(c.t, err)
}

func (c *client) notify(method, params string) {
	c.t.Helper()
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s}`, method, params))
}

func (c *client) next() string {
	c.t.Helper()
	// The worker's sweeps keep the bubble awake: without a deadline a frame that
	// never comes would be no deadlock but an endless wait.
	require.NoError(c.t, c.conn.SetReadDeadline(time.Now().Add(patience)))
	line, err := c.lines.ReadString('\n')
	require.NoError(c.t, err)
	return strings.TrimSuffix(line, "\n")
}

func (c *client) expect(frame string) {
	c.t.Helper()
	require.JSONEq(c.t, frame, c.next())
}

// call sends a request and returns its answer without the envelope.
func (c *client) call(method, params string) string {
	c.t.Helper()
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":%s}`, method, params))
	const envelope = `{"jsonrpc":"2.0","id":7,`
	line := c.next()
	require.True(c.t, strings.HasPrefix(line, envelope), line)
	return "{" + strings.TrimPrefix(line, envelope)
}

// quiet requires that nothing but what was expected so far has been written.
func (c *client) quiet() {
	c.t.Helper()
	c.pings++
	c.notify("worker/ping", fmt.Sprintf(`{"seq":%d}`, c.pings))
	c.expect(fmt.Sprintf(`{"jsonrpc":"2.0","method":"worker/pong","params":{"seq":%d}}`, c.pings))
}

// play runs a script of testdata: lines with > are sent, lines with < must come
// back in that order, others are comments.
func (c *client) play(name string) {
	c.t.Helper()
	script, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(c.t, err)
	for line := range strings.Lines(string(script)) {
		switch frame := strings.TrimSpace(line[1:]); line[0] {
		case '>':
			c.send(frame)
		case '<':
			require.Equal(c.t, frame, c.next())
		}
	}
	c.quiet()
}
