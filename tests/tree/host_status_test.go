// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"os/exec"
	"regexp"
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
	engine.Kill()
	awaitStatus(t, h, `^Ollama +http://127\.0\.0\.1:11434 +no engine at port 11435: nothing listens there$`)
	stopNode(t, h, node)

	engine, other := startEngine(t, h, "127.0.0.1:11434"), startEngine(t, h, "127.0.0.1:15000")
	node = serve(t, h, alias)
	awaitStatus(t, h, `^Ollama +http://127\.0\.0\.1:11436 +note: port 11434 is in use by another program; .*\n`+
		` +the engine at port 11434, models: [1-9]\d*\n +note: .*:15000 cannot be served for Ollama clients: `)
	engine.Kill()
	other.Kill()
	stopNode(t, h, node)
}
