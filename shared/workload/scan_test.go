// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// ours is an object as the proxy writes it.
const ours = `{"id":"12","model":"llama3:latest","engine":"ollama","runId":"0123456789abcdef","state":"failed",` +
	`"originatedFrom":"u","scheduledOn":"v","createdAt":1790000000000,"startedAt":1790000000001,"completedAt":null,` +
	`"error":"upstream returned HTTP 500","requesterId":null,"seq":4}`

// FuzzAQuickReadIsTheSameAsAFullOne: whatever scan takes, parse takes as well and
// reads the same in it.
func FuzzAQuickReadIsTheSameAsAFullOne(f *testing.F) {
	for _, in := range []string{ours, `{"id":"1"}`, `{"seq":01}`, `{"seq":-1}`, `{"seq":-0}`, `{"seq":+1}`, `{"seq":1e3}`, `{"id":null}`,
		`{"id":"1","id":"2"}`, `{"id":"1",}`, `{"id":"1"}}`, `{"id":"1"} `, `{"other":1}`, `{"id":"\u0041"}`, `{"error":nul}`, `{,"id":"1"}`, `{}`,
		`{"id":"1""seq":2}`, `{"startedAt":"1"}`, `{"id":"é"}`, "{\"id\":\"\x7f\"}"} {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		quick, ok := scan(raw)
		if !ok {
			return
		}
		full, err := parse(raw)
		require.NoError(t, err, "%q", raw)
		require.Equal(t, full, quick, "%q", raw)
	})
}

func TestOurOwnObjectsAreReadQuickly(t *testing.T) {
	_, ok := scan([]byte(ours))
	require.True(t, ok)
	var info Info
	require.NoError(t, json.Unmarshal([]byte(ours), &info))
	for _, i := range []Info{info, {ID: "1", State: StateQueued}, {}} {
		raw, err := json.Marshal(i)
		require.NoError(t, err)
		got, ok := scan(raw)
		require.True(t, ok, "%s", raw)
		require.Equal(t, i, got)
	}
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse([]byte(ours)); err != nil {
			b.Fatal(err)
		}
	}
}
