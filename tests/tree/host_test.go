// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/tests/harness"
)

// serve starts a headless node and returns once it has said that it is up.
func serve(t *testing.T, h *harness.Host, change ...func(*exec.Cmd)) *harness.Proc {
	t.Helper()
	cmd := h.Command("nvpair", "serve")
	for _, f := range change {
		f(cmd)
	}
	said := filepath.Join(h.Dir, "said")
	out, err := os.Create(said)
	require.NoError(t, err)
	defer out.Close()
	cmd.Stdout = out
	p := h.Start(cmd)
	harness.Eventually(t, answerWithin, "the node is up", func() bool {
		text, err := os.ReadFile(said)
		return p.Exited() || err == nil && bytes.Contains(text, []byte("In another terminal"))
	})
	require.False(t, p.Exited(), "%s", p.Stderr())
	return p
}

// saidBy returns what the host's headless node has told on its standard output.
func saidBy(t *testing.T, h *harness.Host) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(h.Dir, "said"))
	require.NoError(t, err)
	return string(text)
}

// nvpair runs a command to its end.
func nvpair(t *testing.T, h *harness.Host, input string, args ...string) (code int, out, diagnostics string) {
	t.Helper()
	return runToEnd(t, h.Command("nvpair", args...), input)
}

func runToEnd(t *testing.T, cmd *exec.Cmd, input string) (code int, out, diagnostics string) {
	t.Helper()
	var o, d bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &o, &d
	cmd.WaitDelay = answerWithin
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return cmd.ProcessState.ExitCode(), o.String(), d.String()
}

// stopNode stops a headless node and proves that nothing of it is left.
func stopNode(t *testing.T, h *harness.Host, p *harness.Proc) {
	t.Helper()
	code, out, diagnostics := nvpair(t, h, "", "stop")
	require.Equal(t, 0, code, diagnostics)
	require.Equal(t, "stopped\n", out)
	require.Equal(t, 0, p.AwaitExit(goneWithin), "stop returns when the node is gone")
	h.AwaitNone(goneWithin)
}

// controlSocket returns the path that the node has told.
func controlSocket(t *testing.T, h *harness.Host) string {
	t.Helper()
	match := regexp.MustCompile(`(?m)^  control  (.*)$`).FindStringSubmatch(saidBy(t, h))
	require.NotNil(t, match, saidBy(t, h))
	return match[1]
}

// attach connects to the node and takes its first frame.
func attach(t *testing.T, h *harness.Host) (*harness.Wire, *net.UnixConn) {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: controlSocket(t, h), Net: "unix"})
	require.NoError(t, err)
	w := harness.NewWire(t, conn, conn)
	uiBroker().opened(t, w)
	return w, conn
}

func TestAHeadlessNodeIsAskedAndStoppedFromTheShell(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	require.Empty(t, h.Processes())
	for range 2 {
		code, out, diagnostics := nvpair(t, h, "", "stop")
		require.Equal(t, []any{0, "no node is running for " + h.DataDir + "\n", ""}, []any{code, out, diagnostics})
	}
	code, out, diagnostics := nvpair(t, h, "", "status")
	require.Equal(t, []any{2, ""}, []any{code, out})
	require.Contains(t, diagnostics, "no node is running for "+h.DataDir)
	code, out, _ = nvpair(t, h, "", "status", "--json")
	require.Equal(t, []any{2, `{"state":"stopped"}` + "\n"}, []any{code, out})
	code, _, diagnostics = nvpair(t, h, "", "call", "ping")
	require.Equal(t, 1, code)
	require.Contains(t, diagnostics, "nvpair serve")
	entries, err := os.ReadDir(h.DataDir)
	require.NoError(t, err)
	require.Empty(t, entries, "questions change nothing")

	p := serve(t, h)
	require.Regexp(t, `^node [0-9a-f-]{36} is up \(nvpair 0[^)]*\)\n  workers  `+strconv.Itoa(len(harness.Binaries)-2)+` running, \d not installed\n  data     `+
		h.DataDir+"\n  control  "+filepath.Join(h.Dir, "run", "nvpair")+`/[0-9a-f]{12}\.sock\nIn another terminal: `, saidBy(t, h))
	code, out, diagnostics = nvpair(t, h, "", "status")
	require.Equal(t, []any{0, ""}, []any{code, diagnostics})
	require.Regexp(t, `^state +running\n`, out)
	for _, row := range []string{`node +` + nodeIDOf(t, h), `errors +0`, `Ollama +http://127\.0\.0\.1:11434 +no engine at port 11435: nothing listens there$`, `broker +running +\d+ `,
		`scanner +running +\d+ `, `errors +running +\d+ `, `settings +running +\d+ `, `\S+ +not installed`} {
		require.Regexp(t, `(?m)^`+row, out)
	}
	code, out, _ = nvpair(t, h, "", "status", "--json")
	require.Equal(t, 0, code)
	status := decoded[struct {
		State   string
		Reasons []string
		HubPid  int
		Clients int
		Broker  struct {
			NodeId, DataDir, Version string
			Pid                      int
			Workers                  []struct{ Name, State string }
		}
	}](t, []byte(out))
	require.Equal(t, "running", status.State)
	require.NotNil(t, status.Reasons)
	require.Equal(t, p.PID, status.HubPid)
	require.Equal(t, 1, status.Clients)
	require.Equal(t, []any{nodeIDOf(t, h), h.DataDir, versionOf(t, "nvpair-ui-broker")},
		[]any{status.Broker.NodeId, status.Broker.DataDir, status.Broker.Version})
	require.Len(t, status.Broker.Workers, 10)

	stopNode(t, h, p)
	require.Regexp(t, `\nstopped\n$`, saidBy(t, h))
	code, _, _ = nvpair(t, h, "", "status")
	require.Equal(t, 2, code)
	require.NoFileExists(t, controlSocket(t, h))
}

func TestCallPrintsResultsAndTellsErrorsByItsExitStatus(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	p := serve(t, h)
	long := strings.Repeat("ä", 440_000)
	for _, tt := range []struct {
		args  []string
		input string
		code  int
		out   string // regular expression for all of it
		err   string // likewise, for a part
	}{
		{[]string{"ping"}, "", 0, `\{"pong":true,.*\}\n`, ""},
		{[]string{"ping", "null"}, "", 0, `\{"pong":true,.*\}\n`, ""},
		{[]string{"--timeout", "5s", "version", "{}"}, "", 0, `\{"version":".*"\}\n`, ""},
		{[]string{"version", "--timeout=5s"}, "", 0, `\{"version":".*"\}\n`, ""},
		{[]string{"settings/set-cluster-id", `{"value": "a b"}`}, "", 0, `\{"ok":true\}\n`, ""},
		{[]string{"settings/get-cluster-id"}, "", 0, `\{"value":"a b"\}\n`, ""},
		{[]string{"settings/set-cluster-id", "-"}, "{\n\t\"value\":\n\t\"from\\nstdin\"\n}\n", 0, `\{"ok":true\}\n`, ""},
		{[]string{"settings/get-cluster-id"}, "", 0, `\{"value":"from\\nstdin"\}\n`, ""},
		{[]string{"settings/set-cluster-id", "-"}, `{"value":"` + long + `"}`, 0, `\{"ok":true\}\n`, ""},
		{[]string{"settings/get-cluster-id"}, "", 0, `\{"value":"ä{1000}.*"\}\n`, ""},
		{[]string{"errors:get-initial"}, "", 0, `\[\]\n`, ""},
		{[]string{"errors:report", `{"id":"a","message":"m"}`}, "", 0, `null\n`, ""},
		{[]string{"discovery:subscribe"}, "", 0, `\{"subscribed":true\}\n`, ""},
		{[]string{"hub/status"}, "", 0, `\{"state":"running",.*\}\n`, ""},

		{[]string{"no-such"}, "", 1, ``, `error -32601: method not found: no-such\n`},
		{[]string{"shutdown"}, "", 1, ``, `error -32601: method not found: shutdown\n`},
		{[]string{"settings/set-cluster-id"}, "", 1, ``, `error -32602: invalid params: `},
		{[]string{"engine:status"}, "", 1, ``, `error -32000: engine-manager not available\n`},
		{[]string{"--timeout", "1ns", "ping"}, "", 1, ``, `no answer to ping within 1ns`},

		{nil, "", 2, ``, "a method is needed"},
		{[]string{"ping", "{"}, "", 2, ``, "not JSON"},
		{[]string{"ping", ""}, "", 2, ``, "not JSON"},
		{[]string{"ping", "-"}, "", 2, ``, "not JSON"},
		{[]string{"ping", "{}", "{}"}, "", 2, ``, `unexpected argument "\{\}"`},
		{[]string{"--no-such", "ping"}, "", 2, ``, "no-such"},
		{[]string{"--timeout", "soon", "ping"}, "", 2, ``, "soon"},
		{[]string{"ping", "-"}, `"` + strings.Repeat("x", 1<<20) + `"`, 2, ``, "longer than"},
	} {
		code, out, diagnostics := nvpair(t, h, tt.input, append([]string{"call"}, tt.args...)...)
		about := fmt.Sprintf("call %q: %.300q %.300q", tt.args, out, diagnostics)
		require.Equal(t, tt.code, code, about)
		require.Regexp(t, `^`+tt.out+`$`, out, about)
		require.Regexp(t, tt.err, diagnostics, about)
		if tt.code == 0 {
			require.Empty(t, diagnostics, about)
		}
	}
	stopNode(t, h, p)
}

func TestStatusOfADegradedNodeSaysWhy(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	settings := filepath.Join(h.DataDir, "settings.json")
	require.NoError(t, os.WriteFile(settings, []byte("{}"), 0o600))
	require.NoError(t, os.Chown(settings, harness.Nobody, harness.Nobody)) // so that its worker ends at once
	p := serve(t, h)
	harness.Eventually(t, answerWithin, "status says that node-settings does not run", func() bool {
		code, out, _ := nvpair(t, h, "", "status")
		return code == 1 && regexp.MustCompile(`(?m)^state +degraded\n +settings is restarting: exit status 1$`).MatchString(out)
	})
	harness.Eventually(t, answerWithin, "so does its JSON", func() bool {
		code, out, _ := nvpair(t, h, "", "status", "--json")
		return code == 1 && strings.Contains(out, `"state":"degraded","reasons":["settings is restarting: exit status 1"]`)
	})
	stopNode(t, h, p)
}
