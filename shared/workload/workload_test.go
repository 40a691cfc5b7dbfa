// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func golden(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	require.NoError(t, err)
	return bytes.TrimSpace(b)
}

func TestGoldenPayloadsSurviveDecodingAndEncoding(t *testing.T) {
	for name, value := range map[string]any{
		"queued": &Info{}, "failed": &Info{}, "event": &Event{}, "remove": &Removal{},
	} {
		want := golden(t, name)
		decoder := json.NewDecoder(bytes.NewReader(want))
		decoder.DisallowUnknownFields()
		require.NoError(t, decoder.Decode(value), name)
		got, err := json.Marshal(value)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), name)
	}
}

func TestParseReadsWhatTheStructWrites(t *testing.T) {
	for _, name := range []string{"queued", "failed"} {
		i, err := Parse(golden(t, name))
		require.NoError(t, err)
		got, err := json.Marshal(i)
		require.NoError(t, err)
		require.Equal(t, string(golden(t, name)), string(got))
	}
}

func TestParseKnowsExactNamesAndTypes(t *testing.T) {
	for _, tt := range []struct {
		in string
		id string // "" = refused
	}{
		{`{"id":"a","later":{"x":1}}`, "a"},
		{`{"id":"a","id":"b"}`, "b"},
		{`{"id":"a","ID":"b"}`, "a"}, // other readers of these bytes see a
		{`{"id":"a","seq":null,"startedAt":null,"error":null}`, "a"},
		{`{"id":7}`, ""},
		{`{"id":"a","createdAt":"now"}`, ""},
		{`{"id":"a","seq":1.5}`, ""},
		{`{"id":"a","error":{}}`, ""},
		{`null`, ""},
		{``, ""},
		{`[]`, ""},
	} {
		i, err := Parse(json.RawMessage(tt.in))
		if i.ID != tt.id || (err == nil) != (tt.id != "") {
			t.Errorf("Parse(%s) = id %q, %v; want %q", tt.in, i.ID, err, tt.id)
		}
	}
}

func TestStatesRankAndHaveAMethod(t *testing.T) {
	for _, tt := range []struct {
		state  string
		rank   int
		method string
	}{
		{"queued", 1, MethodSubmitted},
		{"running", 2, MethodStarted},
		{"completed", RankTerminal, MethodCompleted},
		{"failed", RankTerminal, MethodErrored},
		{"cancelled", RankTerminal, MethodErrored},
		{"initializing", 0, ""}, // removed (WL-15)
		{"Running", 0, ""},
		{"", 0, ""},
	} {
		if rank, method := Rank(tt.state), Method(tt.state); rank != tt.rank || method != tt.method {
			t.Errorf("%q: rank %d, method %q; want %d, %q", tt.state, rank, method, tt.rank, tt.method)
		}
	}
}

func TestIdentityKeepsFourPartsApart(t *testing.T) {
	base := Info{ID: "1", Engine: "ollama", RunID: "r", OriginatedFrom: "n"}
	keys := map[Key]bool{KeyOf(base): true}
	for _, change := range []func(*Info){
		func(i *Info) { i.ID = "2" },
		func(i *Info) { i.Engine = "lmstudio" },
		func(i *Info) { i.RunID = "s" },
		func(i *Info) { i.OriginatedFrom = "m" },
		func(i *Info) { i.RunID, i.ID = "r1", "" },
	} {
		other := base
		change(&other)
		keys[KeyOf(other)] = true
	}
	require.Len(t, keys, 6)
	require.Equal(t, Pair{"n", "1"}, KeyOf(base).Pair())
}
