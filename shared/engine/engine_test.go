// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func ids(list []Engine) []string {
	names := []string{}
	for _, e := range list {
		names = append(names, e.ID)
	}
	return names
}

// TestListsOfEngines: see BR-3.
func TestListsOfEngines(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want []string
	}{
		{"", []string{}},
		{" , ,", []string{}},
		{"ollama", []string{"ollama"}},
		{"lmstudio,ollama", []string{"lmstudio", "ollama"}}, // the order stays
		{" ollama ,\tlmstudio,", []string{"ollama", "lmstudio"}},
		{"lmstudio,ollama,lmstudio", []string{"lmstudio", "ollama"}},
	} {
		got, err := ParseList(tt.in)
		require.NoError(t, err, "%q", tt.in)
		require.Equal(t, tt.want, ids(got), "%q", tt.in)
	}
	for _, in := range []string{"vllm", "ollama,vllm", "Ollama", "ollama;lmstudio", "ollama-proxy"} {
		_, err := ParseList(in)
		require.ErrorContains(t, err, "unknown engine ", "%q", in)
		require.ErrorContains(t, err, "known are: ollama,lmstudio", "%q", in)
	}
}

// TestOnlyAKnownEngineIsAnAddress: see WR-38.
func TestOnlyAKnownEngineIsAnAddress(t *testing.T) {
	for _, tt := range []struct{ in, engine, method string }{
		{"ollama:set-port", "ollama", "set-port"},
		{"lmstudio:errors:report", "lmstudio", "errors:report"}, // only the first colon counts
		{"ollama:", "ollama", ""},
		{"ollama", "", "ollama"},
		{"errors:report", "", "errors:report"},
		{"vllm:set-port", "", "vllm:set-port"},
		{"Ollama:set-port", "", "Ollama:set-port"},
		{"ollama-proxy:set-port", "", "ollama-proxy:set-port"},
		{":set-port", "", ":set-port"},
		{"", "", ""},
	} {
		if id, method := SplitMethod(tt.in); id != tt.engine || method != tt.method {
			t.Errorf("SplitMethod(%q) = %q, %q; want %q, %q", tt.in, id, method, tt.engine, tt.method)
		}
	}
}

func TestNothingInTheTableCollides(t *testing.T) {
	require.Equal(t, []string{"ollama", "lmstudio"}, ids(All()), "the order is significant")
	require.Equal(t, strings.Join(ids(All()), ","), IDs())
	var unique []any
	for _, e := range All() {
		found, ok := ByID(e.ID)
		require.True(t, ok)
		require.Equal(t, e, found)
		require.Equal(t, e.ID+"-proxy", e.Proxy())
		for _, value := range []any{e.ID, e.DisplayName, e.ServiceKey, e.FacadePort, e.BasePort, e.SavedPort} {
			require.False(t, slices.Contains(unique, value), "%v twice", value)
			unique = append(unique, value)
		}
	}
	_, ok := ByID("vllm")
	require.False(t, ok)
}
