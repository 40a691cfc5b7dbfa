// SPDX-License-Identifier: Apache-2.0

package nodesettings

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"nvpair/internal/worker"
	"nvpair/internal/worker/workertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is the broker's end of the link of a running worker.
type client struct {
	*workertest.Peer
	t *testing.T
}

// start runs the worker on that file and reads the two frames that announce it.
func start(t *testing.T, file string) *client {
	t.Helper()
	return &client{t: t, Peer: workertest.Start(t, "nvpair-node-settings", on(file))}
}

// on is the worker on that file.
func on(file string) func(context.Context, worker.Config) error {
	return func(ctx context.Context, common worker.Config) error {
		return Run(ctx, Config{Config: common, File: file})
	}
}
