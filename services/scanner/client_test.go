// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"nvpair/internal/worker"
	"nvpair/internal/worker/workertest"
	"nvpair/shared/discovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is the broker's end of the link of a running worker, in a synctest bubble.
type client struct {
	*workertest.Peer
	t *testing.T
}

// start runs the worker with cfg and reads the two frames that announce it. The
// event of the own entry is next.
func start(t *testing.T, cfg Config) *client {
	t.Helper()
	return &client{t: t, Peer: workertest.Start(t, "nvpair-node-scanner", with(cfg))}
}

// with is the worker with that configuration.
func with(cfg Config) func(context.Context, worker.Config) error {
	return func(ctx context.Context, common worker.Config) error {
		cfg.Config = common
		return Run(ctx, cfg)
	}
}

// event reads an event of that method and returns its node.
func (c *client) event(method string) discovery.DirectoryNode {
	c.t.Helper()
	var e discovery.NodeEvent
	c.Event(method, &e)
	return e.Node
}
