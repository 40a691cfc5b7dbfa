// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"nvpair/internal/applog"
	"nvpair/internal/worker"
	"nvpair/shared/schedule"
)

// TestMain is also the worker itself when a benchmark starts it as a process.
func TestMain(m *testing.M) {
	if os.Getenv(playWorker) != "" {
		os.Exit(Main([]string{"--log-level", "info"}, "1.2.3", worker.Stdio()))
	}
	goleak.VerifyTestMain(m)
}

const playWorker = "TEST_PLAY_WORKER"

// client is the broker's end of the link of a running worker, in a synctest
// bubble: a wait that never ends fails at once as a deadlock.
type client struct {
	*service // to look at between messages, under its lock

	t     *testing.T
	conn  net.Conn
	lines *bufio.Reader
	pings int
	ended chan struct{}
	logs  bytes.Buffer // to be read after stop
}

// bubble runs a story against a worker with that interval; 0 is the default.
func bubble(t *testing.T, interval time.Duration, story func(c *client)) {
	t.Helper()
	bubbleOver(t, interval, func(link io.ReadWriteCloser) io.ReadWriteCloser { return link }, story)
}

// bubbleOver is bubble with another transport around the worker's end.
func bubbleOver(t *testing.T, interval time.Duration, around func(io.ReadWriteCloser) io.ReadWriteCloser,
	story func(c *client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		c := &client{t: t, conn: ours, lines: bufio.NewReader(ours), ended: make(chan struct{})}
		level := new(slog.LevelVar)
		level.Set(slog.LevelDebug)
		c.service = newService(Config{
			Config: worker.Config{
				Link:    around(theirs),
				Version: "1.2.3",
				Log:     slog.New(applog.NewHandler(&c.logs, "nvpair-job-scheduler", level)),
				Level:   level,
			},
			Interval: interval,
		})
		go func() {
			defer close(c.ended)
			c.run(t.Context())
		}()
		defer c.stop()
		require.Equal(t, `{"jsonrpc":"2.0","method":"ready","params":{"version":"1.2.3"}}`, c.next())
		require.Equal(t, `{"jsonrpc":"2.0","method":"worker/hello","params":{"liveness":1,"version":"1.2.3"}}`, c.next())
		story(c)
	})
}

// stop ends the input and waits for the end of the worker.
func (c *client) stop() {
	_ = c.conn.Close()
	<-c.ended
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

// next returns the next frame. Empty lines, which end torn frames, are skipped.
func (c *client) next() string {
	c.t.Helper()
	for {
		line, err := c.lines.ReadString('\n')
		require.NoError(c.t, err)
		if line = strings.TrimSuffix(line, "\n"); line != "" {
			return line
		}
	}
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
	synctest.Wait() // what is due is in the pipe or queued
	c.pings++
	c.notify("worker/ping", fmt.Sprintf(`{"seq":%d}`, c.pings))
	require.Equal(c.t, fmt.Sprintf(`{"jsonrpc":"2.0","method":"worker/pong","params":{"seq":%d}}`, c.pings), c.next())
}

// pass lets time go by and everything due happen.
func (c *client) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// out reads one ranking for every engine, at once, and returns it as
// "node pending/pressure" items.
func (c *client) out() string {
	c.t.Helper()
	begin := time.Now()
	var first string
	for i, engine := range []string{"ollama", "lmstudio"} {
		got := ranking(c.t, engine, c.next())
		if i == 0 {
			first = got
		}
		require.Equal(c.t, first, got)
	}
	require.Zero(c.t, time.Since(begin))
	return first
}

func ranking(t *testing.T, engine, frame string) string {
	t.Helper()
	var f struct {
		Method string
		Params schedule.Priority
	}
	require.NoError(t, json.Unmarshal([]byte(frame), &f))
	require.Equal(t, schedule.NotifyPriority, f.Method, frame)
	require.Equal(t, engine, f.Params.Engine)
	require.Len(t, f.Params.Ranks, len(f.Params.Nodes))
	require.NotNil(t, f.Params.Nodes)
	for i, r := range f.Params.Ranks {
		require.Equal(t, f.Params.Nodes[i], r.ID)
		require.Equal(t, i, r.Rank)
	}
	return items(f.Params.Ranks)
}

func items(ranks []schedule.NodeRank) string {
	var all []string
	for _, r := range ranks {
		all = append(all, fmt.Sprintf("%s %d/%d", r.ID, r.Pending, r.GPUPressure))
	}
	return strings.Join(all, ", ")
}

func (c *client) list(ids ...string) {
	c.t.Helper()
	nodes := []map[string]string{}
	for _, id := range ids {
		nodes = append(nodes, map[string]string{"hostUuid": id})
	}
	params, err := json.Marshal(nodes)
	require.NoError(c.t, err)
	c.notify("discovery:nodes-changed", string(params))
}

// place sends a running job of that id on a node.
func (c *client) place(id, node string) {
	c.t.Helper()
	c.upsert(id, "running", node)
}

func (c *client) upsert(id, state, node string) {
	c.t.Helper()
	c.notify("workloads:upsert", fmt.Sprintf(
		`{"workloadInfo":{"id":%q,"engine":"ollama","runId":"r","state":%q,"originatedFrom":"p","scheduledOn":%q}}`,
		id, state, node))
}

func (c *client) telemetry(node string, percent int) {
	c.t.Helper()
	c.notify("scheduler:telemetry", fmt.Sprintf(
		`{"hostUuid":%q,"gpuUtilizationPercent":%d,"telemetryValid":true,"msSince":0}`, node, percent))
}

// play runs a script of testdata: lines with > are sent, each when the last
// output is past, lines with < must come back in that order, others are
// comments.
func (c *client) play(name string) {
	c.t.Helper()
	script, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(c.t, err)
	for line := range strings.Lines(string(script)) {
		switch frame := strings.TrimSpace(line[1:]); line[0] {
		case '>':
			c.quiet()
			c.pass(outputWindow)
			c.quiet()
			c.send(frame)
		case '<':
			require.Equal(c.t, frame, c.next())
		}
	}
	c.pass(outputWindow)
	c.quiet()
}
