// SPDX-License-Identifier: Apache-2.0

package manualnodes

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"nvpair/internal/worker"
	"nvpair/internal/worker/workertest"
	wire "nvpair/shared/manualnodes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ownUUID = "11111111-2222-3333-4444-555555555555"

// client is the broker's end of the link of a running worker, in a synctest bubble.
type client struct {
	*workertest.Peer
	t *testing.T
}

// start runs the worker on that data directory and reads the two frames that
// announce it.
func start(t *testing.T, dir string, n *network) *client {
	t.Helper()
	run := func(ctx context.Context, common worker.Config) error {
		return Run(ctx, Config{Config: common, DataDir: dir, NodeID: ownUUID, Dial: n.dial, Lookup: n.lookup})
	}
	return &client{t: t, Peer: workertest.Start(t, "nvpair-manual-nodes", run)}
}

// stop ends the input and waits for the worker.
func (c *client) stop() {
	c.t.Helper()
	require.NoError(c.t, c.Stop())
}

// event reads the next frame, which must be a notification of that method.
func (c *client) event(method string) (st wire.Status) {
	c.t.Helper()
	c.Event(method, &st)
	return st
}

// call sends a request and decodes its result, which must be the next frame.
func (c *client) call(method, params string, result any) {
	c.t.Helper()
	var f struct{ Result json.RawMessage }
	answer := c.Call(method, params)
	require.NoError(c.t, json.Unmarshal([]byte(answer), &f))
	require.NotNil(c.t, f.Result, answer)
	require.NoError(c.t, json.Unmarshal(f.Result, result))
}

// refused sends a request, whose answer must be an error, and returns that.
func (c *client) refused(method, params string) (code int, message string) {
	c.t.Helper()
	var f struct {
		Error struct {
			Code    int
			Message string
		}
	}
	answer := c.Call(method, params)
	require.NoError(c.t, json.Unmarshal([]byte(answer), &f))
	require.NotZero(c.t, f.Error.Code, answer)
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

func request(method, params string) string { return workertest.Request(7, method, params) }

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
