// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/tests/harness"
)

func TestOfTwoBrokersTheSecondWaitsThenSaysWhoIsThere(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	first, w := uiBroker().start(t, h)
	cmd := h.Command("nvpair-ui-broker")
	cmd.Dir = harness.Bin(t)
	begin := time.Now()
	second := h.Start(cmd)
	require.Equal(t, 1, second.AwaitExit(endWithin))
	require.GreaterOrEqual(t, time.Since(begin), 4500*time.Millisecond)
	require.Regexp(t, `ERROR broker ended err="another broker is running for this data directory: .*`+
		filepath.Join(h.DataDir, "run", "broker.lock")+` is locked by nvpair-ui-broker, pid `+strconv.Itoa(first.PID)+
		`, since \d{4}-`, second.Stderr())
	require.NotContains(t, second.Stderr(), " started path=")
	uiBroker().works(t, w, "1")

	cmd = h.Command("nvpair-ui-broker")
	cmd.Dir = harness.Bin(t)
	third := h.Start(cmd)
	require.NoError(t, first.Stdin.Close())
	require.Equal(t, 0, first.AwaitExit(endWithin))
	w = third.Wire(t)
	uiBroker().opened(t, w) // it was still waiting
	uiBroker().endsWithItsInput(t, h, third)
}

func TestOfTwoHeadlessNodesTheSecondEndsAtOnce(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	first := serve(t, h)
	before := h.Processes()
	begin := time.Now()
	code, out, diagnostics := nvpair(t, h, "", "serve")
	require.Equal(t, 1, code)
	require.Less(t, time.Since(begin), endWithin/2)
	require.Empty(t, out)
	require.Regexp(t, `a node is already running for `+h.DataDir+` \(process `+strconv.Itoa(first.PID)+`, nvpair serve\)`, diagnostics)
	after := h.Processes()
	require.Len(t, after, len(before))
	for i := range before {
		require.Equal(t, before[i].PID, after[i].PID)
	}
	code, _, _ = nvpair(t, h, "", "status")
	require.Equal(t, 0, code)
	stopNode(t, h, first)
}
