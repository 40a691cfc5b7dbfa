// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// TestOllamaHostIsReadAsItsClientsDo: see BR-92 and BR-93.
func TestOllamaHostIsReadAsItsClientsDo(t *testing.T) {
	both := []string{"127.0.0.1", "::1"}
	for _, tt := range []struct {
		in    string
		port  int
		hosts []string
	}{
		{"", 0, nil},
		{"127.0.0.1", 0, nil}, // the usual port is the facade's own
		{"127.0.0.1:11434", 0, nil},
		{"localhost:5000", 5000, both},
		{" \"LOCALHOST.:5000\" ", 5000, both},
		{"'0.0.0.0:5000'", 5000, both},
		{":5000", 5000, both},
		{"[::]:5000", 5000, both},
		{"[::1]:5000", 5000, []string{"::1"}},
		{"127.0.0.2:5000", 5000, []string{"127.0.0.2"}},
		{"http://127.0.0.1", 80, []string{"127.0.0.1"}},
		{"http://localhost:5000/", 5000, both},
		{"HTTP://localhost:5000", 5000, both},
		{"localhost:0", 0, nil},     // a bad port is the default
		{"localhost:70000", 0, nil}, // the same
		{"localhost:x", 0, nil},
		{"http://localhost:x", 80, both},
		{"https://localhost:5000", 0, nil},
		{"tcp://localhost:5000", 0, nil},
		{"ollama.com", 0, nil},
		{"http://me@localhost:5000", 0, nil},
		{"http://localhost:5000/path", 0, nil},
		{"localhost:5000?x", 0, nil},
		{"localhost:5000#x", 0, nil},
		{"192.168.1.5:5000", 0, nil},
		{"gpu.local:5000", 0, nil},
		{"[::ffff:127.0.0.1]:5000", 0, nil},
	} {
		got := parseOllamaHost(tt.in)
		require.Equal(t, hostAlias{tt.port, tt.hosts}, got, "%q", tt.in)
	}
}

func FuzzOllamaHost(f *testing.F) {
	f.Add("http://localhost:5000")
	f.Fuzz(func(t *testing.T, text string) {
		a := parseOllamaHost(text)
		require.Equal(t, a.port == 0, a.hosts == nil)
		require.NotEqual(t, ollamaPort, a.port)
		require.True(t, a.port >= 0 && a.port <= 65535)
	})
}

func TestAnAliasThatBelongsToAnotherIsRefused(t *testing.T) { // BR-94
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		f := tr.facades
		for port, owner := range map[int]string{
			5000: "", 11435: "Ollama itself", 1234: "LM Studio's facade", 1235: "LM Studio itself",
			14318: "this node's own services", 14326: "this node's own services", 5001: "the facade itself",
		} {
			f.alias = hostAlias{port, []string{"127.0.0.1"}}
			require.Equal(t, owner, f.aliasConflict(f.list[0].engine, 5001), "%d", port)
		}
		f.alias = hostAlias{5000, []string{"127.0.0.1", "::1"}}
		require.Equal(t, []string{"127.0.0.1:5000", "[::1]:5000"}, f.aliasFor(t.Context(), f.list[0].engine, 11434))
		require.Nil(t, f.aliasFor(t.Context(), f.list[1].engine, 1234), "Ollama's only")
		tr.client.Send(`{"jsonrpc":"2.0","id":1,"method":"ollama-proxy:set-port","params":{"port":5000}}`)
		require.Contains(t, tr.client.Next(), "port 5000 is the inherited OLLAMA_HOST proxy alias")
	})
}
