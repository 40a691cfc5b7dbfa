// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/tests/harness"
)

// ownerOf returns the id of the user to whom a file belongs.
func ownerOf(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

// errorIDs returns the ids in a list of service errors.
func errorIDs(t *testing.T, f harness.Frame) []string {
	t.Helper()
	var ids []string
	raw := f.Params
	if f.Result != nil {
		raw = f.Result
	}
	for _, e := range decoded[[]map[string]any](t, raw) {
		ids = append(ids, e["id"].(string))
	}
	return ids
}

// awaitErrors waits until the node's errors are exactly those.
func awaitErrors(t *testing.T, w *harness.Wire, ids ...string) {
	t.Helper()
	harness.Eventually(t, answerWithin, "the errors are "+strings.Join(ids, ", "), func() bool {
		got := errorIDs(t, w.Call(`"errors"`, "errors:get-initial", ""))
		return strings.Join(got, " ") == strings.Join(ids, " ")
	})
}

func TestMalformedSettingsAreSetAsideWhole(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"truncated":  `{"force_ports": false, "cluster_id": "ab`,
		"empty":      "",
		"wrong type": `{"force_ports": "yes", "cluster_id": "kept?"}`,
		"null":       `{"cluster_id": null}`,
		"array":      `[]`,
		"not UTF-8":  "{\"cluster_id\": \"\xff\"}",
		"zeros":      strings.Repeat("\x00", 4096),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := harness.NewHost(t, "alpha")
			path := filepath.Join(h.DataDir, "settings.json")
			write(t, path, text, 0o600)
			h.GiveTo(harness.Nobody)
			p := startAsNobody(t, h, "nvpair-ui-broker")
			w := p.Wire(t)
			uiBroker().opened(t, w)
			require.Equal(t, `{"value":true}`, string(w.Call("1", "settings/get-force-ports", "").Result))
			require.Equal(t, `{"value":""}`, string(w.Call("2", "settings/get-cluster-id", "").Result))
			awaitErrors(t, w, "node-settings:settings-reset")
			require.NoFileExists(t, path)
			kept, err := filepath.Glob(path + ".corrupt-*")
			require.NoError(t, err)
			require.Len(t, kept, 1)
			requireText(t, text, kept[0])

			require.Equal(t, `{"ok":true}`, string(w.Call("3", "settings/set-cluster-id", `{"value":"new"}`).Result))
			awaitErrors(t, w)
			uiBroker().endsWithItsInput(t, h, p)
			requireText(t, text, kept[0])

			p = startAsNobody(t, h, "nvpair-ui-broker")
			w = p.Wire(t)
			uiBroker().opened(t, w)
			require.Equal(t, `{"value":"new"}`, string(w.Call("4", "settings/get-cluster-id", "").Result))
			uiBroker().endsWithItsInput(t, h, p)
		})
	}
}

func requireText(t *testing.T, want, path string) {
	t.Helper()
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, string(got), path)
}

func TestUnsafeSettingsAreRefusedAndTheTreeRunsWithoutThem(t *testing.T) {
	t.Parallel()
	const text = `{"force_ports": false}`
	for name, tt := range map[string]struct {
		reason string
		make   func(t *testing.T, path string)
	}{
		"of another user": {"belongs to user 0", func(t *testing.T, path string) {
			write(t, path, text, 0o644)
			require.NoError(t, os.Chown(path, 0, 0))
		}},
		"unreadable": {"permission denied", func(t *testing.T, path string) {
			write(t, path, text, 0o600)
			require.NoError(t, os.Chown(path, 0, 0))
		}},
		"writable by all": {"can be written by group or others", func(t *testing.T, path string) { write(t, path, text, 0o666) }},
		"a link": {"is a link", func(t *testing.T, path string) {
			write(t, path+"-target", text, 0o600)
			require.NoError(t, os.Symlink(path+"-target", path))
		}},
		"a dangling link": {"is a link", func(t *testing.T, path string) { require.NoError(t, os.Symlink(path+"-target", path)) }},
		"twice linked": {"has 2 hard links", func(t *testing.T, path string) {
			write(t, path, text, 0o600)
			require.NoError(t, os.Link(path, path+"-too"))
		}},
		"a directory": {"is not a regular file", func(t *testing.T, path string) {
			require.NoError(t, os.Mkdir(path, 0o700))
			require.NoError(t, os.Chown(path, harness.Nobody, harness.Nobody))
		}},
		"a pipe": {"is not a regular file", func(t *testing.T, path string) {
			require.NoError(t, syscall.Mkfifo(path, 0o600))
			require.NoError(t, os.Chown(path, harness.Nobody, harness.Nobody))
		}},
		"too large": {"is larger than", func(t *testing.T, path string) {
			write(t, path, `{"cluster_id":"`+strings.Repeat("x", 5<<20)+`"}`, 0o600)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := harness.NewHost(t, "alpha")
			h.GiveTo(harness.Nobody)
			path := filepath.Join(h.DataDir, "settings.json")
			tt.make(t, path)
			before := contents(t, h.DataDir)
			p := startAsNobody(t, h, "nvpair-ui-broker")
			w := p.Wire(t)
			uiBroker().opened(t, w) // in spite of it (BR-6)
			p.AwaitStderr(`\[nvpair-node-settings\] ERROR ended err=".*`+path+`[ :].*`+tt.reason, answerWithin)
			awaitErrors(t, w, "supervisor:subprocess-crashed:settings")
			f := w.Call("1", "settings/set-force-ports", `{"value":true}`)
			require.NotNil(t, f.Error, f.Line)
			require.Equal(t, -32000, f.Error.Code)
			uiBroker().endsWithItsInput(t, h, p)
			after := contents(t, h.DataDir)
			for path, what := range before {
				if path != h.DataDir {
					require.Equal(t, what, after[path], path)
				}
			}
		})
	}
}

func TestASettingThatCannotBeWrittenIsRefusedAndTheOldOneStays(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	h.GiveTo(harness.Nobody)
	path := filepath.Join(h.DataDir, "settings.json")
	for round, mode := range []fs.FileMode{0o700, 0o500, 0o700} {
		require.NoError(t, os.Chmod(h.DataDir, mode))
		p := startAsNobody(t, h, "nvpair-ui-broker")
		w := p.Wire(t)
		uiBroker().opened(t, w)
		if mode == 0o500 {
			before := contents(t, h.DataDir)
			for id, method := range map[string]string{"1": "settings/set-cluster-id", "2": "settings/set-cluster-friendly-name"} {
				f := w.Call(id, method, `{"value":"refused"}`)
				require.NotNil(t, f.Error, f.Line)
				require.Equal(t, -32603, f.Error.Code)
				require.Contains(t, f.Error.Message, path)
			}
			require.Zero(t, count(w, "connection/cluster-identity"))
			require.Equal(t, before, contents(t, h.DataDir))
			require.Equal(t, `{"value":"round 0"}`, string(w.Call("3", "settings/get-cluster-id", "").Result))
		} else {
			value := `"round ` + string(rune('0'+round)) + `"`
			require.Equal(t, `{"ok":true}`, string(w.Call("4", "settings/set-cluster-id", `{"value":`+value+`}`).Result))
		}
		uiBroker().endsWithItsInput(t, h, p)
	}
}

func TestAReadOnlySettingsFileIsReplaced(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	path := filepath.Join(h.DataDir, "settings.json")
	write(t, path, `{"force_ports": false, "unknown": 1}`, 0o400)
	h.GiveTo(harness.Nobody)
	p := startAsNobody(t, h, "nvpair-ui-broker")
	w := p.Wire(t)
	uiBroker().opened(t, w)
	require.Equal(t, `{"value":false}`, string(w.Call("1", "settings/get-force-ports", "").Result))
	require.Equal(t, `{"ok":true}`, string(w.Call("2", "settings/set-cluster-auto-sync", `{"value":true}`).Result))
	uiBroker().endsWithItsInput(t, h, p)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.JSONEq(t, `{"force_ports":false,"cluster_auto_sync":true,"cluster_id":"","cluster_friendly_name":""}`, string(text))
}
