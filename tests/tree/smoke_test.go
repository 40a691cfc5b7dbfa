// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/tests/harness"
)

func TestABrokerAnswersAndEndsWithItsInput(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	p, c := harness.StartBroker(t, h)
	var pong struct {
		Pong    bool   `json:"pong"`
		Version string `json:"version"`
	}
	c.MustCall("ping", nil, &pong)
	require.True(t, pong.Pong)
	c.MustCall("discovery:subscribe", nil, nil)
	c.Await("discovery:nodes-changed", 10*time.Second, func(raw json.RawMessage) bool {
		var nodes []struct {
			ID string `json:"id"`
		}
		return json.Unmarshal(raw, &nodes) == nil && len(nodes) == 1 && nodes[0].ID == "alpha"
	})
	require.NoError(t, p.Stdin.Close())
	require.Equal(t, 0, p.AwaitExit(15*time.Second))
	h.AwaitNone(time.Second)
}
