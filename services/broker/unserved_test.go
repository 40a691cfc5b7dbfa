// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// attach writes a manifest of an attach-only engine.
func attach(t *testing.T, dir, file, dialect, port string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o700))
	text := `{"engine":"vllm","dialect":"` + dialect + `","attach_only":true,"runtime":{"port":` + port + `}}`
	require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
}

func TestAManifestThatLeadsNowhereIsOneServiceErrorUntilItIsMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		store := tr.join(workerErrors, 1)
		synctest.Wait()
		m := tr.manifests
		look := func(times int, healthy ...int) {
			for range times {
				m.judge("ollama", m.attached("ollama"), func(port int) bool { return slices.Contains(healthy, port) },
					func(port int) bool { return port == 11434 })
			}
		}
		const clear = `"errors:clear","params":{"id":"engine-manager:manifest-unserved:a.json"`

		attach(t, m.dir, "a.json", "ollama", "8000")
		attach(t, m.dir, "b.json", "ollama", "8001")
		look(unservedAfter-1, 8001)
		store.Idle() // it may be starting
		look(1, 8001)
		line := store.Next()
		require.Contains(t, line, `"id":"engine-manager:manifest-unserved:a.json"`)
		require.Contains(t, line, `no engine answers at port 8000, where the engine manifest `+filepath.Join(m.dir, "a.json")+` says that \"vllm\" is: start it, set`)
		look(100, 8001)
		store.Idle() // once
		m.judge("lmstudio", m.attached("lmstudio"), func(int) bool { return false }, func(int) bool { return false })
		store.Idle() // no business of the other facade

		look(1, 8000, 8001)
		require.Contains(t, store.Next(), clear)
		look(unservedAfter-1, 8001)
		look(1, 8000, 8001)
		store.Idle() // it was restarted

		attach(t, m.dir, "a.json", "ollama", "11434")
		look(1, 8001)
		require.Contains(t, store.Next(), "names port 11434, at which nvpair itself serves: set")
		look(100, 8001)
		store.Idle()
		attach(t, m.dir, "a.json", "ollama", "80001")
		look(1, 8001)
		lines := store.Next() + store.Next() // as a file that cannot be used, which is another matter
		require.Contains(t, lines, clear)
		require.Contains(t, lines, "manifest-invalid:a.json")

		attach(t, m.dir, "a.json", "ollama", "11434")
		look(1, 8001)
		lines = store.Next() + store.Next()
		require.Contains(t, lines, "at which nvpair itself serves")
		require.NoError(t, os.Remove(filepath.Join(m.dir, "a.json")))
		look(1, 8001)
		require.Contains(t, store.Next(), clear)
		require.Empty(t, m.unserved)
		store.Idle()
	})
}
