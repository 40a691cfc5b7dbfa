// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"bufio"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/tests/harness"
)

// awaitStatus waits until nvpair status shows something.
func awaitStatus(t *testing.T, h *harness.Host, pattern string) {
	t.Helper()
	want, out := regexp.MustCompile(`(?m)`+pattern), ""
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("nvpair status:\n%s", out)
		}
	})
	harness.Eventually(t, inferenceWithin, pattern, func() bool {
		_, out, _ = nvpair(t, h, "", "status")
		return want.MatchString(out)
	})
}

func TestStatusSaysWhichURLToUseAndWhatAnswersThere(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	engine := startEngine(t, h, "127.0.0.1:11435")
	alias := func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "OLLAMA_HOST=localhost:15000") }
	node := serve(t, h, alias)
	awaitStatus(t, h, `^Ollama +http://127\.0\.0\.1:11434 +the engine at port 11435, models: [1-9]\d*\n`+
		` +http://127\.0\.0\.1:15000 +the same, since OLLAMA_HOST names it\n`+
		`LM Studio +http://127\.0\.0\.1:1234 +no engine at port 1235: nothing listens there$`)
	_, out, _ := nvpair(t, h, "", "status", "--json")
	require.Regexp(t, `"port":11434,"aliases":\["127\.0\.0\.1:15000"(,"\[::1\]:15000")?\],"engines":\[\{"port":11435,"up":true,"models":[1-9]`, out)
	watch := h.Start(h.Command("nvpair", "nodes", "--watch", "--json"))
	lists := bufio.NewScanner(watch.Stdout)
	require.True(t, lists.Scan())
	require.Regexp(t, `"hostUuid":"`+nodeIDOf(t, h)+`".*"modelsByEngine":\{"ollama":\["`, lists.Text())
	engine.Kill()
	for strings.Contains(lists.Text(), `"modelsByEngine"`) {
		require.True(t, lists.Scan(), "the list is printed again when the models are gone")
	}
	watch.Signal(syscall.SIGINT)
	require.Equal(t, 0, watch.AwaitExit(answerWithin))
	awaitStatus(t, h, `^Ollama +http://127\.0\.0\.1:11434 +no engine at port 11435: nothing listens there$`)
	stopNode(t, h, node)

	engine, other := startEngine(t, h, "127.0.0.1:11434"), startEngine(t, h, "127.0.0.1:15000")
	node = serve(t, h, alias)
	awaitStatus(t, h, `^Ollama +http://127\.0\.0\.1:11436 +the engine at port 11434, models: [1-9]\d*\n`+
		` +note: port 11434 is in use by another program; .*\n +note: .*:15000 cannot be served for Ollama clients: `)
	engine.Kill()
	other.Kill()
	stopNode(t, h, node)
}

func TestErrorsAreListedWatchedAndCleared(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	node := serve(t, h)
	code, out, diagnostics := nvpair(t, h, "", "errors")
	require.Equal(t, []any{0, "no errors\n", ""}, []any{code, out, diagnostics})
	watch := h.Start(h.Command("nvpair", "errors", "--watch"))
	lines := bufio.NewScanner(watch.Stdout)
	require.True(t, lines.Scan())
	require.Equal(t, "no errors", lines.Text())

	_, out, _ = nvpair(t, h, "", "call", "errors:report", `{"id":"a:b","message":"it is \u001b[31mred","severity":"warning"}`)
	require.Equal(t, "null\n", out)
	require.True(t, lines.Scan())
	require.Empty(t, lines.Text(), "between two lists")
	require.True(t, lines.Scan())
	require.Regexp(t, `^warning  \ds ago  a:b$`, lines.Text())
	require.True(t, lines.Scan())
	require.Equal(t, "    it is \uFFFD[31mred", lines.Text())
	awaitStatus(t, h, `^errors +1: nvpair errors$`)
	code, out, _ = nvpair(t, h, "", "errors", "--json")
	require.Equal(t, 0, code)
	require.Regexp(t, `^\[\{"id":"a:b","message":"it is \\u001b\[31mred","timestamp":\d+,"nodeId":"`+nodeIDOf(t, h)+`","severity":"warning"\}\]\n$`, out)

	code, _, diagnostics = nvpair(t, h, "", "errors", "clear", "a")
	require.Equal(t, 1, code)
	require.Contains(t, diagnostics, `this node has no error "a"; nvpair errors lists them`)
	code, out, _ = nvpair(t, h, "", "errors", "clear", "a:b")
	require.Equal(t, []any{0, "cleared a:b; it is listed again if it is reported again\n"}, []any{code, out})
	require.True(t, lines.Scan())
	require.Empty(t, lines.Text())
	require.True(t, lines.Scan())
	require.Equal(t, "no errors", lines.Text())
	watch.Signal(syscall.SIGINT)
	require.Equal(t, 0, watch.AwaitExit(answerWithin))
	stopNode(t, h, node)
}
