// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"nvpair/shared/manualnodes"
)

func TestNodesForPeople(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a fixed time: 946684800
		var l nodeList
		raw, err := os.ReadFile(filepath.Join("testdata", "nodes.json"))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(raw, &l))
		l.self = "u0"
		want, err := os.ReadFile(filepath.Join("testdata", "nodes.txt"))
		require.NoError(t, err)
		var got bytes.Buffer
		l.print(&got, false)
		require.Equal(t, string(want), got.String())

		got.Reset()
		l.print(&got, true)
		require.JSONEq(t, string(raw), got.String())
	})
}

func TestWhatBecameOfAnAddedNode(t *testing.T) {
	for _, tt := range []struct {
		status manualnodes.Status
		want   string
	}{
		{manualnodes.Status{ID: "manual:h", Address: "h"}, "added manual:h (h); it has not answered yet"},
		{manualnodes.Status{ID: "h", Address: "h", OllamaUp: true, OllamaPort: 1, OllamaModels: []string{"m"}, LMStudioUp: true, LMStudioPort: 2},
			"added h: Ollama at port 1, models: 1; LM Studio at port 2, models: 0"},
		{manualnodes.Status{ID: "x", Name: "desk", Address: "h", Error: "no answer in time"},
			"added desk (h), but it serves nothing now: no answer in time; it is tried again every 10 s"},
	} {
		require.Equal(t, tt.want, added(tt.status))
	}
}

func TestANodeIsPickedByIDNameIdentityOrAddress(t *testing.T) {
	nodes := []manualnodes.Status{
		{ID: "manual:10.0.0.5", Name: "desk", Address: "10.0.0.5", HostUUID: "u"},
		{ID: "desk", Address: "Tower.local"},
		{ID: "manual:a", Name: "twin", Address: "a"},
		{ID: "manual:b", Name: "twin", Address: "b"},
	}
	for wanted, id := range map[string]string{
		"desk": "desk", "u": "manual:10.0.0.5", "10.0.0.5": "manual:10.0.0.5", "tower.LOCAL": "desk", "manual:a": "manual:a",
	} {
		got, err := pick(nodes, wanted)
		require.NoError(t, err, wanted)
		require.Equal(t, id, got, wanted)
	}
	_, err := pick(nodes, "twin")
	require.EqualError(t, err, `2 nodes are called "twin": name one of manual:a, manual:b`)
	_, err = pick(nodes, "nobody")
	require.EqualError(t, err, `no node "nobody" was added by address; nvpair nodes lists them`)
}
