// SPDX-License-Identifier: Apache-2.0

package manualnodes

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"nvpair/internal/applog"
	"nvpair/internal/worker"
	wire "nvpair/shared/manualnodes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ownUUID = "11111111-2222-3333-4444-555555555555"

// client is the broker's end of the link of a running worker. All waits are in a
// synctest bubble: one that never ends fails at once as a deadlock.
type client struct {
	t     *testing.T
	conn  net.Conn
	lines *bufio.Reader
	pings int
	ended chan error   // what Run returned
	log   bytes.Buffer // to be read after stop
}

// start runs the worker on that data directory and reads the two frames that
// announce it.
func start(t *testing.T, dir string, n *network) *client {
	t.Helper()
	ours, theirs := net.Pipe()
	c := &client{t: t, conn: ours, lines: bufio.NewReaderSize(ours, 1<<20), ended: make(chan error, 1)}
	level := new(slog.LevelVar)
	level.Set(slog.LevelDebug)
	cfg := Config{
		Config: worker.Config{
			Link: theirs, Version: "1.2.3", Level: level,
			Log: slog.New(applog.NewHandler(&c.log, "nvpair-manual-nodes", level)),
		},
		DataDir: dir, NodeID: ownUUID, Dial: n.dial, Lookup: n.lookup,
	}
	go func() { c.ended <- Run(context.WithoutCancel(t.Context()), cfg) }()
	t.Cleanup(func() { _ = ours.Close() })
	c.expect(`{"jsonrpc":"2.0","method":"ready","params":{"version":"1.2.3"}}`)
	c.expect(`{"jsonrpc":"2.0","method":"worker/hello","params":{"liveness":1,"version":"1.2.3"}}`)
	return c
}

// stop ends the input and waits for the worker.
func (c *client) stop() {
	c.t.Helper()
	_ = c.conn.Close()
	require.NoError(c.t, <-c.ended)
}

func (c *client) send(frame string) {
	c.t.Helper()
	_, err := fmt.Fprintln(c.conn, frame)
	require.NoError(c.t, err)
}

func (c *client) next() string {
	c.t.Helper()
	line, err := c.lines.ReadString('\n')
	require.NoError(c.t, err)
	return strings.TrimSuffix(line, "\n")
}

func (c *client) expect(frame string) {
	c.t.Helper()
	require.JSONEq(c.t, frame, c.next())
}

// event reads the next frame, which must be a notification of that method.
func (c *client) event(method string) wire.Status {
	c.t.Helper()
	line := c.next()
	var f struct {
		Method string
		Params wire.Status
	}
	require.NoError(c.t, json.Unmarshal([]byte(line), &f))
	require.Equal(c.t, method, f.Method, line)
	return f.Params
}

// call sends a request and decodes its result, which must be the next frame.
func (c *client) call(method, params string, result any) {
	c.t.Helper()
	c.send(request(method, params))
	var f struct {
		ID     int
		Result json.RawMessage
	}
	line := c.next()
	require.NoError(c.t, json.Unmarshal([]byte(line), &f))
	require.Equal(c.t, 7, f.ID, line)
	require.NotNil(c.t, f.Result, line)
	require.NoError(c.t, json.Unmarshal(f.Result, result))
}

// refused sends a request, whose answer must be an error, and returns that.
func (c *client) refused(method, params string) (code int, message string) {
	c.t.Helper()
	c.send(request(method, params))
	var f struct {
		Error struct {
			Code    int
			Message string
		}
	}
	line := c.next()
	require.NoError(c.t, json.Unmarshal([]byte(line), &f))
	require.NotZero(c.t, f.Error.Code, line)
	return f.Error.Code, f.Error.Message
}

// add adds a node and returns the answer and what its first probe found.
func (c *client) add(params string) (answer, found wire.Status) {
	c.t.Helper()
	c.call("node/add", params, &answer)
	return answer, c.event("node/discovered")
}

func (c *client) list() []wire.Status {
	c.t.Helper()
	var nodes wire.Nodes
	c.call("nodes/list", "null", &nodes)
	require.NotNil(c.t, nodes.Nodes)
	return nodes.Nodes
}

func request(method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":%s}`, method, params)
}

// quiet requires that nothing but what was expected so far has been written.
func (c *client) quiet() {
	c.t.Helper()
	c.pings++
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"worker/ping","params":{"seq":%d}}`, c.pings))
	c.expect(fmt.Sprintf(`{"jsonrpc":"2.0","method":"worker/pong","params":{"seq":%d}}`, c.pings))
}

// newDir returns a data directory that nobody else can write.
func newDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.Mkdir(dir, 0o700))
	return dir
}

// write puts a file into a data directory.
func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	return string(text)
}

const listFile = "manual-nodes/nodes.json"
