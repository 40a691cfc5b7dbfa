// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/tests/harness"
)

// inferenceWithin bounds what takes milliseconds, a look at the engines (5 s) included.
const inferenceWithin = 30 * time.Second

// startEngine starts the stand-in for an engine on a host.
func startEngine(t *testing.T, h *harness.Host, listen string, args ...string) *harness.Proc {
	p := h.Start(h.Command(harness.Program(t, "tests/engine/demo"), append([]string{"--listen", listen}, args...)...))
	t.Cleanup(p.Kill)
	return p
}

// clientOf returns an HTTP client whose machine is the host.
func clientOf(t *testing.T, h *harness.Host) *http.Client {
	transport := &http.Transport{DialContext: h.DialContext, DisableKeepAlives: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: inferenceWithin}
}

// chat asks for an answer and returns its status and body.
func chat(client *http.Client, port int, model string) (int, string) {
	resp, err := client.Post(fmt.Sprintf("http://127.0.0.1:%d/v1/chat/completions", port), "application/json",
		strings.NewReader(`{"model":"`+model+`","stream":true,"messages":[{"role":"user","content":"hello"}]}`))
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(raw)
}

// awaitServed waits until a request through the facade is answered whole.
func awaitServed(t *testing.T, client *http.Client, port int) {
	t.Helper()
	harness.Eventually(t, inferenceWithin, fmt.Sprintf("answer through the facade on port %d", port), func() bool {
		status, body := chat(client, port, "demo")
		return status == http.StatusOK && strings.Contains(body, "data: [DONE]")
	})
}

// jobStates returns the states of the jobs in the index.
func jobStates(t *testing.T, c *harness.Client) []string {
	t.Helper()
	var list struct {
		Workloads []struct {
			State string `json:"state"`
		} `json:"workloads"`
	}
	c.MustCall("workloads:get-initial", nil, &list)
	var states []string
	for _, j := range list.Workloads {
		states = append(states, j.State)
	}
	return states
}

func TestARequestIsServedAndListedAlsoAfterTheProxyWasKilled(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	startEngine(t, h, "127.0.0.1:11435")
	p, c := harness.StartBroker(t, h)
	client := clientOf(t, h)
	awaitServed(t, client, 11434)
	harness.Eventually(t, inferenceWithin, "completed job in the index", func() bool {
		return len(jobStates(t, c)) > 0 && jobStates(t, c)[0] == "completed"
	})

	before := pidOf(t, c, "nvpair-proxy")
	require.NoError(t, syscall.Kill(before, syscall.SIGKILL))
	harness.Eventually(t, inferenceWithin, "new proxy", func() bool {
		pid := pidOf(t, c, "nvpair-proxy")
		return pid != 0 && pid != before
	})
	awaitServed(t, client, 11434)
	require.NoError(t, p.Stdin.Close())
	require.Equal(t, 0, p.AwaitExit(endWithin))
}

// pidOf returns a worker's pid from the broker's status, 0 while it is down.
func pidOf(t *testing.T, c *harness.Client, name string) int {
	t.Helper()
	var status struct {
		Workers []struct {
			Name string `json:"name"`
			PID  int    `json:"pid"`
		} `json:"workers"`
	}
	c.MustCall("broker:status", nil, &status)
	for _, w := range status.Workers {
		if w.Name == name {
			return w.PID
		}
	}
	return 0
}

func TestJobsOfAKilledProxyEnd(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	startEngine(t, h, "127.0.0.1:11435", "--first", "1h") // accepts, and never gets to its first token
	_, c := harness.StartBroker(t, h)
	client := clientOf(t, h)
	harness.Eventually(t, inferenceWithin, "model behind the facade", func() bool {
		resp, err := client.Get("http://127.0.0.1:11434/v1/models")
		if err != nil {
			return false
		}
		defer func() { _ = resp.Body.Close() }()
		raw, err := io.ReadAll(resp.Body)
		return err == nil && strings.Contains(string(raw), "demo")
	})
	ended := make(chan struct{})
	go func() { defer close(ended); chat(client, 11434, "demo") }()
	harness.Eventually(t, inferenceWithin, "open job", func() bool {
		return strings.Contains(strings.Join(jobStates(t, c), " "), "queued")
	})
	require.NoError(t, syscall.Kill(pidOf(t, c, "nvpair-proxy"), syscall.SIGKILL))
	<-ended
	harness.Eventually(t, inferenceWithin, "end of the job", func() bool {
		return strings.Join(jobStates(t, c), " ") == "failed"
	})
}

func TestAnEngineOfAManifestIsFoundWhileTheNodeRuns(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	_, c := harness.StartBroker(t, h)
	startEngine(t, h, "127.0.0.1:18080", "--dialect", "lmstudio", "--models", "demo")
	dir := filepath.Join(h.DataDir, "engines")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bad.json"), []byte("{"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine.json"), []byte(
		`{"engine":"mine","display_name":"Mine","dialect":"openai","attach_only":true,"runtime":{"port":18080}}`), 0o600))
	awaitServed(t, clientOf(t, h), 1234)
	c.Await("errors:update", inferenceWithin, func(raw json.RawMessage) bool {
		return strings.Contains(string(raw), "manifest-invalid:bad.json")
	})
	require.NoError(t, os.Remove(filepath.Join(dir, "bad.json")))
	c.Await("errors:update", inferenceWithin, func(raw json.RawMessage) bool { return string(raw) == "[]" })

	loop := filepath.Join(dir, "loop.json") // to a facade of this node
	require.NoError(t, os.WriteFile(loop, []byte(`{"engine":"loop","dialect":"openai","attach_only":true,"runtime":{"port":11434}}`), 0o600))
	c.Await("errors:update", inferenceWithin, func(raw json.RawMessage) bool {
		return strings.Contains(string(raw), "names port 11434, at which nvpair itself serves")
	})
	require.NoError(t, os.WriteFile(loop, []byte(`{"engine":"loop","dialect":"openai","attach_only":true,"runtime":{"port":18081}}`), 0o600))
	c.Await("errors:update", 2*inferenceWithin, func(raw json.RawMessage) bool {
		return strings.Contains(string(raw), "no engine answers at port 18081")
	})
	startEngine(t, h, "127.0.0.1:18081", "--dialect", "lmstudio", "--models", "other")
	harness.Eventually(t, inferenceWithin, "the end of the error", func() bool {
		var list []json.RawMessage
		c.MustCall("errors:get-initial", nil, &list)
		return len(list) == 0
	})
}

func TestTwoEnginesOfOneDialectServeOnOneMachine(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	startEngine(t, h, "127.0.0.1:11435", "--models", "first")
	startEngine(t, h, "127.0.0.1:18080", "--models", "second")
	dir := filepath.Join(h.DataDir, "engines")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine.json"), []byte(
		`{"engine":"mine","dialect":"ollama","attach_only":true,"runtime":{"port":18080}}`), 0o600))
	harness.StartBroker(t, h)
	client := clientOf(t, h)
	for _, model := range []string{"first", "second"} {
		harness.Eventually(t, inferenceWithin, "answer of "+model, func() bool {
			status, body := chat(client, 11434, model)
			return status == http.StatusOK && strings.Contains(body, "data: [DONE]")
		})
	}
}

func TestClientsThatOllamaHostSendsElsewhereAreServedThere(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	startEngine(t, h, "127.0.0.1:11435")
	cmd := h.Command("nvpair-ui-broker")
	cmd.Dir = harness.Bin(t)
	cmd.Env = append(cmd.Env, "OLLAMA_HOST=http://localhost:15000")
	c := h.Start(cmd).Client(t)
	c.Await("app:ready", inferenceWithin, nil)
	client := clientOf(t, h)
	awaitServed(t, client, 15000)
	awaitServed(t, client, 11434)
}

func TestAFacadeWhosePortIsTakenServesElsewhereAndComesBack(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	startEngine(t, h, "127.0.0.1:11435")
	stranger := startEngine(t, h, "127.0.0.1:11434", "--dialect", "vllm")
	_, c := harness.StartBroker(t, h)
	client := clientOf(t, h)
	c.Await("errors:update", inferenceWithin, func(raw json.RawMessage) bool {
		return strings.Contains(string(raw), "ollama-proxy:port-ownership-blocked")
	})
	awaitServed(t, client, facadePort(t, c))
	stranger.Kill()
	harness.Eventually(t, inferenceWithin, "facade on its usual port", func() bool { return facadePort(t, c) == 11434 })
	awaitServed(t, client, 11434)
	c.Await("errors:update", inferenceWithin, func(raw json.RawMessage) bool { return string(raw) == "[]" })
}

func facadePort(t *testing.T, c *harness.Client) int {
	t.Helper()
	var status struct {
		Port int `json:"port"`
	}
	c.MustCall("ollama-proxy:get-status", nil, &status)
	return status.Port
}
