// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/tests/harness"
)

// probedWithin bounds what a probe has to find: they are 10 s apart.
const probedWithin = 40 * time.Second

const (
	alphaIP = "10.77.0.1"
	betaIP  = "10.77.0.2"
)

// joinHosts lays a cable between two hosts.
func joinHosts(t *testing.T, a, b *harness.Host) {
	t.Helper()
	ip(t, exec.Command("ip", "link", "add", "eth0", "netns", strconv.Itoa(a.HolderPID()),
		"type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(b.HolderPID())))
	for addr, h := range map[string]*harness.Host{alphaIP: a, betaIP: b} {
		ip(t, h.Command("ip", "addr", "add", addr+"/24", "dev", "eth0"))
		ip(t, h.Command("ip", "link", "set", "eth0", "up"))
	}
}

func ip(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", cmd, out)
}

// twoHosts returns a host that is to run a node, and one with nothing on it.
func twoHosts(t *testing.T) (alpha, beta *harness.Host) {
	t.Helper()
	alpha, beta = harness.NewHost(t, "alpha"), harness.NewHost(t, "beta")
	joinHosts(t, alpha, beta)
	return alpha, beta
}

// awaitUnserved waits until a request is refused, and returns what it is told.
func awaitUnserved(t *testing.T, client *http.Client) string {
	t.Helper()
	var text string
	harness.Eventually(t, probedWithin, "a request is refused", func() bool {
		var status int
		status, text = chat(client, 11434, "demo")
		return status >= 400
	})
	return text
}

func TestAMachineGivenByAddressServesRequestsOfThisNode(t *testing.T) {
	t.Parallel()
	alpha, beta := twoHosts(t)
	engine := startEngine(t, beta, "0.0.0.0:11434")
	node := serve(t, alpha)
	client := clientOf(t, alpha)
	require.NotEmpty(t, awaitUnserved(t, client))

	watch := alpha.Start(alpha.Command("nvpair", "nodes", "--watch", "--json"))
	lists := bufio.NewScanner(watch.Stdout)
	require.True(t, lists.Scan())
	require.NotContains(t, lists.Text(), "beta")

	code, out, diagnostics := nvpair(t, alpha, "", "node", "add", betaIP, "--name", "beta")
	require.Equal(t, []any{0, ""}, []any{code, diagnostics})
	require.Regexp(t, `^added beta \(`+betaIP+`\): Ollama at port 11434, models: [1-9]\d*\n$`, out)
	awaitServed(t, client, 11434)
	code, out, _ = nvpair(t, alpha, "", "nodes")
	require.Equal(t, 0, code)
	require.Regexp(t, `(?m)^alpha +\S+ +- +\S.*  - +this node$`, out)
	require.Regexp(t, `(?m)^beta +`+betaIP+` +\d+s +- +ollama [1-9]\d*`, out)
	for !strings.Contains(lists.Text(), `"ollama_up":true`) {
		require.True(t, lists.Scan())
	}
	require.Contains(t, lists.Text(), `"name":"beta"`)
	watch.Signal(syscall.SIGINT)
	require.Equal(t, 0, watch.AwaitExit(answerWithin))
	code, out, _ = nvpair(t, alpha, "", "jobs")
	require.Equal(t, 0, code)
	require.Regexp(t, `completed .* demo.* beta`, out)

	engine.Kill()
	require.Contains(t, awaitUnserved(t, client), "error")
	harness.Eventually(t, probedWithin, "the list says why", func() bool {
		_, out, _ = nvpair(t, alpha, "", "nodes")
		return strings.Contains(out, "connection refused")
	})
	harness.Eventually(t, probedWithin, "a person is told", func() bool {
		_, out, _ = nvpair(t, alpha, "", "errors")
		return regexp.MustCompile(`(?m)^warning  \d+s ago  manual-nodes:probe-failed:beta\n    Node beta at `).MatchString(out)
	})
	killed := workerOn(t, alpha, "errors")
	require.NoError(t, syscall.Kill(killed, syscall.SIGKILL))
	harness.Eventually(t, answerWithin, "a new error store is told too", func() bool {
		_, out, _ = nvpair(t, alpha, "", "call", "errors:get-initial")
		pid := workerOn(t, alpha, "errors")
		return pid > 0 && pid != killed && strings.Contains(out, "manual-nodes:probe-failed:beta")
	})
	startEngine(t, beta, "0.0.0.0:11434")
	harness.Eventually(t, probedWithin, "served again", func() bool {
		status, _ := chat(client, 11434, "demo")
		return status == http.StatusOK
	})
	_, out, _ = nvpair(t, alpha, "", "errors")
	require.NotContains(t, out, "manual-nodes:probe-failed:beta")

	stopNode(t, alpha, node)
	node = serve(t, alpha)
	awaitServed(t, client, 11434) // nobody added it again

	before := workerOn(t, alpha, "manual-nodes")
	require.NoError(t, syscall.Kill(before, syscall.SIGKILL))
	harness.Eventually(t, answerWithin, "another worker", func() bool {
		pid := workerOn(t, alpha, "manual-nodes")
		return pid > 0 && pid != before
	})
	awaitServed(t, client, 11434)

	code, out, _ = nvpair(t, alpha, "", "node", "remove", betaIP)
	require.Equal(t, []any{0, "removed beta (" + betaIP + ")\n"}, []any{code, out})
	awaitUnserved(t, client)
	_, out, _ = nvpair(t, alpha, "", "nodes")
	require.NotContains(t, out, "beta")
	_, out, _ = nvpair(t, alpha, "", "call", "discovery:get-nodes")
	require.NotContains(t, out, "beta")
	code, _, diagnostics = nvpair(t, alpha, "", "node", "remove", "beta")
	require.Equal(t, 1, code)
	require.Contains(t, diagnostics, `no node "beta" was added by address`)
	stopNode(t, alpha, node)
	text, err := os.ReadFile(filepath.Join(alpha.DataDir, "manual-nodes", "nodes.json"))
	require.NoError(t, err)
	require.Equal(t, "[]\n", string(text))
}

// workerOn returns the pid of a worker, 0 while it is down.
func workerOn(t *testing.T, h *harness.Host, name string) int {
	t.Helper()
	_, out, _ := nvpair(t, h, "", "status", "--json")
	var status struct {
		Broker struct {
			Workers []struct {
				Name string
				PID  int
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &status))
	for _, w := range status.Broker.Workers {
		if w.Name == name {
			return w.PID
		}
	}
	return 0
}

func TestAddressesThatCannotServeAreExplained(t *testing.T) {
	t.Parallel()
	alpha, beta := twoHosts(t)
	engine := startEngine(t, alpha, "127.0.0.1:11435")
	node, other := serve(t, alpha), serve(t, beta)
	client := clientOf(t, alpha)
	awaitServed(t, client, 11434)
	for _, tt := range []struct {
		args   []string
		code   int
		answer string // part of what is said
	}{
		{[]string{"node", "add"}, 2, "an address is needed"},
		{[]string{"node"}, 2, "add or remove is needed"},
		{[]string{"node", "add", "http://" + betaIP}, 1, "without http:// and without a path"},
		{[]string{"node", "add", betaIP + ":11500"}, 2, "--ollama-port 11500"},
		{[]string{"node", "add", betaIP}, 0, "but it serves nothing now: "}, // its facades serve no strangers
		{[]string{"node", "add", alphaIP}, 1, "whose engines are found without being added, as nvpair status shows; nothing was added"},
		{[]string{"node", "add", "localhost"}, 1, "localhost is this machine itself"}, // also by name
		{[]string{"node", "add", alphaIP, "--ollama-port", "11435"}, 1, "the folder engines of the data directory"},
		{[]string{"node", "remove", alphaIP}, 1, "was not added by address"},
		{[]string{"call", "node/add", `{"address":"localhost"}`}, 0, `"manual:localhost"`}, // or it became this machine's later
		{[]string{"node", "add", "localhost"}, 1, "take it off the list with: nvpair node remove manual:localhost"},
	} {
		code, out, diagnostics := nvpair(t, alpha, "", tt.args...)
		require.Equal(t, tt.code, code, "%q: %s%s", tt.args, out, diagnostics)
		require.Contains(t, out+diagnostics, tt.answer, "%q", tt.args)
	}
	awaitServed(t, client, 11434)
	_, out, _ := nvpair(t, alpha, "", "call", "ollama-proxy:nodes/list")
	require.NotContains(t, out, "manual:", "no request may come back")

	harness.Eventually(t, probedWithin, "the list has models, hardware and reasons", func() bool {
		_, out, _ = nvpair(t, alpha, "", "nodes")
		return regexp.MustCompile(`(?m)^manual:localhost +localhost +\S+ +- +- +this is the address of this machine itself`).MatchString(out) &&
			regexp.MustCompile(`(?m)^alpha +\S+ +- +\S.*  ollama [1-9]\d* +this node$`).MatchString(out) &&
			regexp.MustCompile(`(?m)^beta +`+betaIP+` +\S+ +\S.* it runs nvpair itself.*; added as manual:`+betaIP+`$`).MatchString(out)
	})
	code, out, diagnostics := nvpair(t, alpha, "", "node", "remove", "beta")
	require.Equal(t, []any{0, "removed manual:" + betaIP + " (" + betaIP + ")\n", ""}, []any{code, out, diagnostics}, "by the name that is shown")
	harness.Eventually(t, probedWithin, "it is only heard then", func() bool {
		_, out, _ = nvpair(t, alpha, "", "nodes")
		return regexp.MustCompile(`(?m)^beta .* no engine$`).MatchString(out)
	})
	code, _, diagnostics = nvpair(t, alpha, "", "node", "remove", "beta")
	require.Equal(t, 1, code)
	require.Contains(t, diagnostics, `"beta" was not added by address`)
	stopNode(t, beta, other)
	engine.Kill()
	stopNode(t, alpha, node)
}
