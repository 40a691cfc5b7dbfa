// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/tests/harness"
)

func TestAHeadlessNodeOutlivesItsTerminal(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	read, write, err := os.Pipe()
	require.NoError(t, err)
	p := serve(t, h, func(cmd *exec.Cmd) { cmd.Stderr = write })
	require.NoError(t, write.Close())
	require.NoError(t, p.Stdin.Close())
	w, _ := attach(t, h)
	require.NotNil(t, w.Call("1", "ping", "").Result)
	require.NoError(t, read.Close()) // nobody sees its log any more
	p.Signal(syscall.SIGHUP)
	p.Signal(syscall.SIGPIPE)
	require.NotNil(t, w.Call("2", "log/set-level", `{"level":"debug"}`).Result)
	for range 5000 { // far more log than a pipe holds
		w.Send(harness.RequestLine("", "nobody/knows", ""))
	}
	require.NotNil(t, w.Call("3", "ping", "").Result)
	require.Equal(t, `{"ok":true}`, string(w.Call("4", "settings/set-force-ports", `{"value":false}`).Result))
	code, _, _ := nvpair(t, h, "", "status")
	require.Equal(t, 0, code)
	stopNode(t, h, p)
}

func TestSignalsEndAHeadlessNodeInOrder(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		p := serve(t, h)
		w, _ := attach(t, h)
		p.Signal(signal)
		require.Equal(t, 0, p.AwaitExit(endWithin))
		h.AwaitNone(goneWithin)
		w.AwaitEnd(answerWithin)
		require.Contains(t, p.Stderr(), "[nvpair-ui-broker] INFO shutdown complete\n")
		require.Regexp(t, `\nstopped\n$`, saidBy(t, h))
	}
}

func TestTheControlSocketIsTheUsersOwn(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	p := serve(t, h)
	path := controlSocket(t, h)
	for name, mode := range map[string]os.FileMode{path: os.ModeSocket | 0o600, filepath.Dir(path): os.ModeDir | 0o700} {
		info, err := os.Lstat(name)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode(), name)
		require.Zero(t, ownerOf(info), name)
	}
	require.NoError(t, os.Chmod(filepath.Join(h.Dir, "run"), 0o755)) // so that another user gets that far
	code, out, diagnostics := runToEnd(t, h.CommandAs(harness.Nobody, "nvpair", "call", "ping"), "")
	require.Equal(t, []any{1, ""}, []any{code, out})
	require.Contains(t, diagnostics, "belongs to user 0, not to user 65534")
	code, _, _ = runToEnd(t, h.CommandAs(harness.Nobody, "nvpair", "status"), "")
	require.NotZero(t, code)

	// The socket's own mode keeps others out, even if its directory did not.
	require.NoError(t, os.Chmod(filepath.Dir(path), 0o755))
	code, out, diagnostics = runToEnd(t, h.CommandAs(harness.Nobody, "nvpair-node-settings", "--ipc", path), "")
	require.Equal(t, []any{1, ""}, []any{code, out})
	require.Contains(t, diagnostics, "permission denied")

	// A directory that others can write is no place for a socket: neither end uses it.
	require.NoError(t, os.Chmod(filepath.Dir(path), 0o777))
	code, _, diagnostics = nvpair(t, h, "", "call", "ping")
	require.Equal(t, 1, code)
	require.Contains(t, diagnostics, filepath.Dir(path)+" is open to other users")
	require.NoError(t, os.Chmod(filepath.Dir(path), 0o700))
	stopNode(t, h, p)
}

// freeze stops a process and returns once none of its threads runs.
func freeze(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	harness.Eventually(t, answerWithin, "each thread is stopped", func() bool {
		threads, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
		require.NoError(t, err)
		require.NotEmpty(t, threads)
		for _, thread := range threads {
			text, _ := os.ReadFile(thread) // one that has ended runs no more
			if _, state, found := strings.Cut(string(text), ") "); found && !strings.HasPrefix(state, "T") {
				return false
			}
		}
		return true
	})
}

func TestClientsSurviveTheDeathOfTheBroker(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	p := serve(t, h)
	w, _ := attach(t, h)
	idle, _ := attach(t, h)
	require.NotNil(t, w.Call("1", "discovery:subscribe", "").Result)
	first := workerPID(t, w, "")
	freeze(t, first) // so that a call is on its way when it dies
	w.Send(harness.RequestLine("2", "ping", ""))
	require.NotNil(t, w.Call("3", "discovery:unsubscribe", "").Result) // the hub's own; behind the ping
	require.NotNil(t, w.Call("4", "discovery:subscribe", "").Result)
	require.NoError(t, syscall.Kill(first, syscall.SIGKILL))

	f := w.Answer("2")
	require.Equal(t, &harness.ErrorObject{Code: -32000, Message: "broker call failed: jsonrpc peer closed"}, f.Error)
	for _, c := range []*harness.Wire{w, idle} {
		f := c.Await("the loss", answerWithin, func(f harness.Frame) bool { return f.Method == "hub/broker-lost" })
		require.JSONEq(t, `{"cause":"signal: killed","restarting":true}`, string(f.Params))
	}
	f = w.Call("5", "ping", "")
	require.NotNil(t, f.Error, f.Line)
	require.Equal(t, -32000, f.Error.Code)
	code, out, _ := nvpair(t, h, "", "status", "--json")
	require.Equal(t, 1, code)
	require.Regexp(t, `^\{"state":"degraded","reasons":\["the broker is being restarted: signal: killed"\],.*"broker":null[,}]`, out)

	for _, c := range []*harness.Wire{w, idle} {
		c.Await("app:ready again", answerWithin, func(f harness.Frame) bool { return f.Method == "app:ready" })
	}
	w.Await("the directory of the new broker", answerWithin, func(f harness.Frame) bool {
		return f.Method == "discovery:nodes-changed" && len(decoded[[]any](t, f.Params)) == 1
	})
	require.NotEqual(t, first, workerPID(t, w, ""))
	require.Equal(t, `{"value":true}`, string(w.Call("6", "settings/get-force-ports", "").Result))
	require.Zero(t, count(idle, "discovery:nodes-changed"))
	code, _, _ = nvpair(t, h, "", "status")
	require.Equal(t, 0, code)
	require.Len(t, h.Processes(), len(harness.Binaries))
	stopNode(t, h, p)
}

func TestNothingOutlivesAKilledHeadlessNode(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	for range 2 { // the second finds what the first left
		p := serve(t, h)
		w, _ := attach(t, h)
		p.Kill()
		h.AwaitNone(endWithin)
		w.AwaitEnd(answerWithin)
		code, _, diagnostics := nvpair(t, h, "", "status")
		require.Equal(t, 2, code, diagnostics)
		require.FileExists(t, controlSocket(t, h), "that is what it left")
	}
	p := serve(t, h)
	code, _, _ := nvpair(t, h, "", "status")
	require.Equal(t, 0, code)
	stopNode(t, h, p)
}

func TestTheControlSocketFindsAPlace(t *testing.T) {
	t.Parallel()
	const noRuntimeDir = "XDG_RUNTIME_DIR="
	for name, tt := range map[string]struct {
		dataDir string // below the host's data directory
		place   string // regular expression, below the host's directory
	}{
		"in the data directory":            {"", `data/run/nvpair\.sock`},
		"beside a long data directory":     {strings.Repeat("/long-directory-name", 8), `tmp/nvpair-0-[0-9a-f]{12}/nvpair\.sock`},
		"beside a data directory in UTF-8": {strings.Repeat("/däta", 20), `tmp/nvpair-0-[0-9a-f]{12}/nvpair\.sock`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := harness.NewHost(t, "alpha")
			h.DataDir += tt.dataDir
			p := serve(t, h, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, noRuntimeDir) })
			require.Regexp(t, `^`+regexp.QuoteMeta(h.Dir)+`/`+tt.place+`$`, controlSocket(t, h))
			code, out, _ := nvpair(t, h, "", "call", "ping") // it has XDG_RUNTIME_DIR, the node has not
			require.Equal(t, 0, code)
			require.Contains(t, out, `"pong":true`)
			stopNode(t, h, p)
		})
	}
	t.Run("nowhere", func(t *testing.T) {
		t.Parallel()
		h := harness.NewHost(t, "alpha")
		h.DataDir += strings.Repeat("/long-directory-name", 8)
		long := []string{noRuntimeDir, "TMPDIR=" + h.DataDir}
		cmd := h.Command("nvpair", "serve")
		cmd.Env = append(cmd.Env, long...)
		code, _, diagnostics := runToEnd(t, cmd, "")
		require.Equal(t, 1, code)
		require.Regexp(t, `(?m)^nvpair: open the control socket: .*too long`, diagnostics)
		require.NotContains(t, diagnostics, "%!")
		cmd = h.Command("nvpair", "status")
		cmd.Env = append(cmd.Env, long...)
		code, _, _ = runToEnd(t, cmd, "")
		require.Equal(t, 2, code)
	})
}

func TestARelativeDataDirectoryIsOneForTheWholeTree(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	relative := func(cmd *exec.Cmd) {
		cmd.Dir = h.Dir
		cmd.Env = append(cmd.Env, "NVPAIR_DATA_DIR=data/./below")
	}
	p := serve(t, h, relative)
	require.Contains(t, saidBy(t, h), "\n  data     "+filepath.Join(h.DataDir, "below")+"\n")
	cmd := h.Command("nvpair", "call", "settings/set-cluster-id", `{"value":"x"}`)
	relative(cmd)
	code, _, diagnostics := runToEnd(t, cmd, "")
	require.Equal(t, 0, code, diagnostics)
	h.DataDir = filepath.Join(h.DataDir, "below")
	for _, file := range []string{"settings.json", "node-id.json", "schema.json", "run/node.lock", "run/broker.lock"} {
		require.FileExists(t, filepath.Join(h.DataDir, file))
	}
	entries, err := os.ReadDir(harness.Bin(t)) // where the workers run
	require.NoError(t, err)
	for _, entry := range entries {
		require.NotEqual(t, "data", entry.Name())
	}
	stopNode(t, h, p) // which names the directory absolutely
}
