// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/tests/harness"
)

// goodNodeID is the content of a node-id.json.
const goodNodeID = `{"node_uuid":"0b5a1d3e-7c44-4f6e-9f0d-2f1f6d1c7a10","created_at":1700000000000}`

// startAsNobody starts a program of the tree as a user for whom owners and modes count.
func startAsNobody(t *testing.T, h *harness.Host, binary string, args ...string) *harness.Proc {
	t.Helper()
	cmd := h.CommandAs(harness.Nobody, binary, args...)
	cmd.Dir = harness.Bin(t)
	return h.Start(cmd)
}

// contents returns what lies below dir: by path the type, mode and owner, and the content or where a link leads.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := entry.Info()
		require.NoError(t, err)
		var text []byte
		switch {
		case info.Mode().IsRegular():
			text, err = os.ReadFile(path)
		case info.Mode()&fs.ModeSymlink != 0:
			var to string
			to, err = os.Readlink(path)
			text = []byte(to)
		}
		require.NoError(t, err)
		found[path] = fmt.Sprintf("%v %d %q", info.Mode(), ownerOf(info), text)
		return nil
	})
	require.NoError(t, err)
	return found
}

// write makes a file of the user who runs the tree.
func write(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	require.NoError(t, os.Chmod(path, mode))
	for _, p := range []string{path, filepath.Dir(path)} {
		require.NoError(t, os.Chown(p, harness.Nobody, harness.Nobody))
	}
}

// dataFault is a state of the data directory with which no node may start.
type dataFault struct {
	name   string
	faulty string // below the data directory: what the message names
	reason string // in the message
	make   func(t *testing.T, path string)
}

// host returns a host with the fault, the path of what is faulty, and what its data directory holds.
func (f dataFault) host(t *testing.T) (h *harness.Host, path string, before map[string]string) {
	t.Helper()
	h = harness.NewHost(t, "alpha")
	h.GiveTo(harness.Nobody)
	path = filepath.Join(h.DataDir, f.faulty)
	f.make(t, path)
	return h, path, contents(t, h.DataDir)
}

func dataFaults() []dataFault {
	file := func(text string, mode fs.FileMode) func(*testing.T, string) {
		return func(t *testing.T, path string) { write(t, path, text, mode) }
	}
	foreign := func(text string, mode fs.FileMode) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			write(t, path, text, mode)
			require.NoError(t, os.Chown(path, 0, 0))
		}
	}
	link := func(text string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			write(t, path+"-target", text, 0o600)
			require.NoError(t, os.Symlink(path+"-target", path))
		}
	}
	directory := func(mode fs.FileMode, uid int) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			require.NoError(t, os.MkdirAll(path, 0o700))
			require.NoError(t, os.Chown(filepath.Dir(path), harness.Nobody, harness.Nobody))
			require.NoError(t, os.Chmod(path, mode))
			require.NoError(t, os.Chown(path, uid, uid))
		}
	}
	return []dataFault{
		{"schema newer", "schema.json", "version 2", file(`{"schema":2}`, 0o600)},
		{"schema much newer", "schema.json", "version 1000000", file(`{"schema":1000000,"more":[]}`, 0o400)},
		{"schema truncated", "schema.json", "damaged", file(`{"sch`, 0o600)},
		{"schema empty", "schema.json", "damaged", file("", 0o600)},
		{"schema of another type", "schema.json", "damaged", file(`{"schema":"1"}`, 0o600)},
		{"schema zero", "schema.json", "damaged", file(`{"schema":0}`, 0o600)},
		{"schema unreadable", "schema.json", "permission denied", foreign(`{"schema":1}`, 0o600)},
		{"schema a directory", "schema.json", "is no regular file", directory(0o700, harness.Nobody)},

		{"identity truncated", "node-id.json", "damaged", file(goodNodeID[:30], 0o600)},
		{"identity empty", "node-id.json", "damaged", file("", 0o600)},
		{"identity no UUID", "node-id.json", "damaged", file(`{"node_uuid":"alpha","created_at":1}`, 0o600)},
		{"identity of another type", "node-id.json", "damaged", file(`[]`, 0o600)},
		{"identity of another user", "node-id.json", "belongs to user 0", foreign(goodNodeID, 0o644)},
		{"identity unreadable", "node-id.json", "permission denied", foreign(goodNodeID, 0o600)},
		{"identity writable by all", "node-id.json", "can be written by group or others", file(goodNodeID, 0o666)},
		{"identity a link", "node-id.json", "is a link", link(goodNodeID)},
		{"identity a directory", "node-id.json", "is not a regular file", directory(0o700, harness.Nobody)},
		{"cluster identity damaged", "cluster/identity.json", "damaged", file("x", 0o600)},

		{"run a file", "run", "not a directory", file("x", 0o600)},
		{"run of another user", "run", "permission denied", directory(0o755, 0)},
		{"run not writable", "run", "permission denied", directory(0o500, harness.Nobody)},
		{"lock a directory", "run/broker.lock", "is not a regular file", directory(0o700, harness.Nobody)},
		{"lock of another user", "run/broker.lock", "belongs to user 0", foreign("", 0o666)},
		{"lock unreadable", "run/broker.lock", "permission denied", foreign("", 0o600)},
		{"lock a link", "run/broker.lock", "is a link", link("")},

		{"data directory of another user", "", "permission denied", directory(0o755, 0)},
		{"data directory of another user, open to all", "", "belongs to user 0", directory(0o777, 0)},
		{"data directory open to all", "", "can be written by group or others", directory(0o777, harness.Nobody)},
		{"data directory not writable", "", "permission denied", directory(0o500, harness.Nobody)},
		{"data directory a file", "", "not a directory", func(t *testing.T, path string) {
			require.NoError(t, os.Remove(path))
			write(t, path, "x", 0o600)
		}},
	}
}

func TestABrokerRefusesADamagedDataDirectoryAndChangesNothing(t *testing.T) {
	t.Parallel()
	for _, fault := range dataFaults() {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			h, path, before := fault.host(t)

			p := startAsNobody(t, h, "nvpair-ui-broker")
			require.Equal(t, 1, p.AwaitExit(endWithin))
			h.AwaitNone(goneWithin)
			require.Regexp(t, `(?m)^.*(ERROR |nvpair-ui-broker: ).*`+path+`.*`+fault.reason, p.Stderr())
			out, err := io.ReadAll(p.Stdout)
			require.NoError(t, err)
			require.Empty(t, string(out), "it is not ready")

			after := contents(t, h.DataDir)
			for path, what := range before {
				require.Equal(t, what, after[path], path)
			}
			if fault.faulty == "schema.json" {
				require.Equal(t, before, after, "nothing at all may be touched")
			}
			require.NotContains(t, p.Stderr(), " started path=", "a worker was started")
		})
	}
}

func TestAHeadlessNodeRefusesADirectoryThatItCannotHaveAtOnce(t *testing.T) {
	t.Parallel()
	for _, fault := range dataFaults() {
		switch fault.name {
		case "schema newer", "schema truncated", "run a file", "run not writable", "data directory of another user",
			"data directory a file":
		default:
			continue // the broker's to find
		}
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			h, path, before := fault.host(t)
			p := startAsNobody(t, h, "nvpair", "serve")
			require.Equal(t, 1, p.AwaitExit(endWithin))
			h.AwaitNone(goneWithin)
			require.Contains(t, p.Stderr(), path)
			require.Contains(t, p.Stderr(), fault.reason)
			require.Equal(t, before, contents(t, h.DataDir))
		})
	}
}

func TestANodeStartsInADirectoryThatIsMissingOrBehindALink(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, h *harness.Host){
		"missing": func(_ *testing.T, h *harness.Host) { h.DataDir = filepath.Join(h.DataDir, "a", "b c", "ü") },
		"behind a link": func(t *testing.T, h *harness.Host) {
			link := filepath.Join(h.Dir, "link")
			require.NoError(t, os.Symlink(h.DataDir, link))
			h.DataDir = link
		},
		"readable by all": func(t *testing.T, h *harness.Host) {
			require.NoError(t, os.Chmod(h.DataDir, 0o755))
			write(t, filepath.Join(h.DataDir, "node-id.json"), goodNodeID, 0o644)
			write(t, filepath.Join(h.DataDir, "schema.json"), `{"schema":1,"more":1}`, 0o444)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := harness.NewHost(t, "alpha")
			prepare(t, h)
			h.GiveTo(harness.Nobody)
			p := startAsNobody(t, h, "nvpair-ui-broker")
			w := p.Wire(t)
			uiBroker().opened(t, w)
			require.Equal(t, `{"ok":true}`, string(w.Call("1", "settings/set-cluster-id", `{"value":"x"}`).Result))
			uiBroker().endsWithItsInput(t, h, p)
			for _, file := range []string{"node-id.json", "settings.json"} {
				info, err := os.Stat(filepath.Join(h.DataDir, file))
				require.NoError(t, err)
				require.Equal(t, fs.FileMode(0o600), info.Mode(), file)
			}
		})
	}
}
