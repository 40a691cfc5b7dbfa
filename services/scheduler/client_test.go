// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"nvpair/internal/worker"
	"nvpair/internal/worker/workertest"
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

// client is the broker's end of the link of a running worker, in a synctest bubble.
type client struct {
	*service // to look at between messages, under its lock
	*workertest.Peer
	t *testing.T
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
		c := &client{t: t}
		c.Peer = workertest.Start(t, "nvpair-job-scheduler", func(ctx context.Context, common worker.Config) error {
			common.Link = around(common.Link)
			c.service = newService(Config{Config: common, Interval: interval})
			c.run(ctx)
			return nil
		})
		story(c)
		require.NoError(t, c.Stop())
	})
}

// Quiet looks once what is due is in the pipe or queued.
func (c *client) Quiet() {
	c.t.Helper()
	synctest.Wait()
	c.Peer.Quiet()
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
		got := ranking(c.t, engine, c.Next())
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
	c.Notify("discovery:nodes-changed", string(params))
}

// place sends a running job of that id on a node.
func (c *client) place(id, node string) {
	c.t.Helper()
	c.upsert(id, "running", node)
}

func (c *client) upsert(id, state, node string) {
	c.t.Helper()
	c.Notify("workloads:upsert", fmt.Sprintf(
		`{"workloadInfo":{"id":%q,"engine":"ollama","runId":"r","state":%q,"originatedFrom":"p","scheduledOn":%q}}`,
		id, state, node))
}

func (c *client) telemetry(node string, percent int) {
	c.t.Helper()
	c.Notify("scheduler:telemetry", fmt.Sprintf(
		`{"hostUuid":%q,"gpuUtilizationPercent":%d,"telemetryValid":true,"msSince":0}`, node, percent))
}

// play runs a script, of which each frame is sent when the last output is past.
func (c *client) play(name string) {
	c.t.Helper()
	c.Play(name, func() {
		c.Quiet()
		c.pass(outputWindow)
		c.Quiet()
	})
	c.pass(outputWindow)
	c.Quiet()
}
