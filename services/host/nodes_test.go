// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"nvpair/shared/discovery"
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
		{manualnodes.Status{ID: "h", Address: "h", OllamaUp: true, OllamaPort: 1, Error: "LM Studio at port 1300: it answers with status 401"},
			"added h: Ollama at port 1, models: 0; LM Studio at port 1300: it answers with status 401"},
		{manualnodes.Status{ID: "x", Name: "desk", Address: "h", Error: "no answer in time"},
			"added desk (h), but it serves nothing now: no answer in time; it is tried again every 10 s"},
	} {
		require.Equal(t, tt.want, added(tt.status))
	}
}

func TestAnEntryIsPickedByWhateverTheListShowsOfIt(t *testing.T) {
	evil := "\x1b[31m" + strings.Repeat("x", 100)
	rows := nodeList{self: "me",
		Nodes: []discovery.AvailableNode{
			{HostUUID: "me", Name: "here", IPAddress: "10.0.0.1"},
			{HostUUID: "u", Name: "studio", IPAddress: "10.0.0.99"},
			{HostUUID: "v", Name: "heard", IPAddress: "10.0.0.7"},
			{HostUUID: "w", Name: evil, IPAddress: "10.0.0.8"},
			{HostUUID: "x", Name: "both"},
			{HostUUID: "y", Name: "double"},
		},
		Manual: []manualnodes.Status{
			{ID: "manual:10.0.0.5", Name: "desk", Address: "10.0.0.5", HostUUID: "u"},
			{ID: "desk", Address: "Tower.local"},
			{ID: "manual:a", Name: "twin", Address: "a"},
			{ID: "manual:b", Name: "twin", Address: "b"},
			{ID: "manual:fd00::1", Address: "fd00::1", HostUUID: "w"},
			{ID: "manual:10.0.0.10", Address: "10.0.0.10", HostUUID: "x"},
			{ID: "manual:10.0.0.11", Address: "10.0.0.11", HostUUID: "x"},
			{ID: "manual:localhost", Address: "localhost", HostUUID: "me"},
			{ID: "double", Address: "10.0.0.12"},
			{ID: "manual:10.0.0.13", Address: "10.0.0.13", HostUUID: "y"},
		},
	}.rows()
	for wanted, id := range map[string]string{
		"10.0.0.5": "manual:10.0.0.5", "tower.LOCAL": "desk", "manual:a": "manual:a", "A": "manual:a",
		"u": "manual:10.0.0.5", "studio": "manual:10.0.0.5", "10.0.0.99": "manual:10.0.0.5",
		"[fd00::1]": "manual:fd00::1", evil: "manual:fd00::1", cell(evil): "manual:fd00::1",
		"10.0.0.10": "manual:10.0.0.10", "10.0.0.11": "manual:10.0.0.11", "localhost": "manual:localhost",
	} {
		got, err := pick(rows, wanted)
		require.NoError(t, err, wanted)
		require.Equal(t, id, got.ID, wanted)
	}
	for wanted, text := range map[string]string{
		"twin":   `2 entries are meant by "twin": name one of manual:a (a), manual:b (b)`,
		"both":   `2 entries are meant by "both": name one of manual:10.0.0.10 (10.0.0.10), manual:10.0.0.11 (10.0.0.11)`,
		"desk":   `"desk" is the id of one entry and a name of another: name one of desk (Tower.local), manual:10.0.0.5 (10.0.0.5) by its address`,
		"double": `"double" is the id of one entry and a name of another: name one of double (10.0.0.12), manual:10.0.0.13 (10.0.0.13) by its address`,
		"-":      `no node "-" was added by address; nvpair nodes lists them`,
		"nobody": `no node "nobody" was added by address; nvpair nodes lists them`,
		"heard":  `"heard" was not added by address: such a node leaves the list when it is gone`,
		"here":   `"here" was not added by address: such a node leaves the list when it is gone`,
	} {
		_, err := pick(rows, wanted)
		require.EqualError(t, err, text)
	}
}

func TestHardwareInAFewWords(t *testing.T) {
	for _, tt := range []struct{ gpus, cpu, memory, want string }{
		{"", "", "", ""},
		{`[]`, `{"cores":16}`, `{"total_bytes":68719476736}`, "16 cores, 64 GiB"},
		{`null`, `{"name":"x"}`, `{"total_bytes":536870912}`, "512 MiB"},
		{`[{"name":"RTX 4090","vram_bytes":25757220864}]`, `{"cores":16}`, "", "RTX 4090 24 GiB"},
		{`[{"name":"Unknown"}]`, "", "", "Unknown"},
		{`[{"name":"A","vram_bytes":1073741824},{"name":"A","vram_bytes":1073741824}]`, "", "", "2 x A 1 GiB"},
		{`[{"name":"A","vram_bytes":1073741824},{"name":"B"},{"name":"A","vram_bytes":1073741824}]`, "", "", "2 x A 1 GiB + 1 other"},
		{`{"name":"A"}`, `[]`, `"much"`, ""},
	} {
		require.Equal(t, tt.want, hardware(json.RawMessage(tt.gpus), json.RawMessage(tt.cpu), json.RawMessage(tt.memory)), "%v", tt)
	}
}
