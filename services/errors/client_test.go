// SPDX-License-Identifier: Apache-2.0

package errors

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"nvpair/internal/worker"
	"nvpair/internal/worker/workertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is the broker's end of the link of a running worker, in a synctest
// bubble in most tests.
type client struct {
	*workertest.Peer
	t *testing.T
}

// start runs the worker with cfg and reads the two frames that announce it.
func start(t *testing.T, cfg Config) *client {
	t.Helper()
	return &client{t: t, Peer: workertest.Start(t, "nvpair-errors", func(ctx context.Context, common worker.Config) error {
		cfg.Config = common
		return Run(ctx, cfg)
	})}
}

// update reads an errors:update and returns its entries, each as the members
// that tests look at.
func (c *client) update() []string {
	c.t.Helper()
	var list json.RawMessage
	c.Event("errors:update", &list)
	return summary(c.t, list)
}

// initial asks for the list.
func (c *client) initial() []string {
	c.t.Helper()
	var answer struct{ Result json.RawMessage }
	require.NoError(c.t, json.Unmarshal([]byte(c.Call("errors:get-initial", "null")), &answer))
	return summary(c.t, answer.Result)
}

func summary(t *testing.T, list json.RawMessage) []string {
	t.Helper()
	require.True(t, bytes.HasPrefix(list, []byte{'['}), "%s", list) // never null
	var entries []struct {
		ID, NodeID, Message string
		Timestamp           int64
	}
	require.NoError(t, json.Unmarshal(list, &entries))
	all := []string{}
	for _, e := range entries {
		all = append(all, fmt.Sprintf("%s@%s %s %d", e.ID, e.NodeID, e.Message, e.Timestamp))
	}
	return all
}
