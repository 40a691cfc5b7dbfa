// SPDX-License-Identifier: Apache-2.0

//go:build linux

package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/tests/engine"
	"nvpair/tests/harness"
)

const (
	// within bounds what takes milliseconds, a look at the engines (5 s) included.
	within = 30 * time.Second
	// scriptWithin bounds a story as one client tells it.
	scriptWithin = time.Minute
	// noCollection is the heap that node starts with, in MB, so large that nothing is collected: the fetch of node 18
	// forgets that a request can be aborted once its memory was. It can go with node 18.
	noCollection = "--initial-heap-size=512"
	// control is where the demo engine takes its faults.
	control = "127.0.0.1:9435"
)

// dialect is an engine with its facade.
type dialect struct {
	name   string
	engine int // port of the demo engine
	facade int
}

var (
	ollama   = dialect{"ollama", 11435, 11434}
	lmStudio = dialect{"lmstudio", 1235, 1234}
)

// stage is a host with an engine, and a tree that serves it.
type stage struct {
	h      *harness.Host
	d      dialect
	http   *http.Client // whose machine is the host
	broker *harness.Client
	script string // of the client
}

// newStage starts all that the stories need and returns once the facade lists their models.
func newStage(t *testing.T, script string, d dialect, stories []story) *stage {
	t.Helper()
	requireClients(t)
	path, err := filepath.Abs(script)
	require.NoError(t, err)
	h := harness.NewHost(t, "alpha")
	transport := &http.Transport{DialContext: h.DialContext, DisableKeepAlives: true}
	t.Cleanup(transport.CloseIdleConnections)
	s := &stage{h: h, d: d, script: path, http: &http.Client{Transport: transport, Timeout: within}}
	e := h.Start(h.Command(harness.Program(t, "tests/engine/demo"), "--dialect", d.name, "--control", control,
		"--listen", fmt.Sprintf("127.0.0.1:%d", d.engine), "--models", models(stories)))
	t.Cleanup(e.Kill)
	p, c := harness.StartBroker(t, h)
	s.broker = c
	t.Cleanup(func() {
		require.NoError(t, p.Stdin.Close())
		require.Equal(t, 0, p.AwaitExit(within))
	})
	harness.Eventually(t, within, "models behind the facade", func() bool {
		list, err := s.get(fmt.Sprintf("127.0.0.1:%d/v1/models", d.facade))
		return err == nil && strings.Contains(string(list), stories[0].name)
	})
	return s
}

// requireClients skips the test if the client libraries are not there, or fails it in CI.
func requireClients(t *testing.T) {
	t.Helper()
	harness.Require(t)
	if _, err := exec.LookPath("node"); err != nil {
		harness.Lacking(t, "node, version 18 or later, with npm")
	}
	if _, err := os.Stat("node_modules/.package-lock.json"); err != nil { // npm writes it last
		harness.Lacking(t, "the client libraries: npm ci --ignore-scripts --prefix tests/clients")
	}
}

// models returns the engine's list: one of its own for each story.
func models(stories []story) string {
	var names []string
	for _, st := range stories {
		if st.name == "embeddings" {
			st.name += "+embedding"
		}
		names = append(names, st.name)
	}
	return strings.Join(names, ",")
}

func (s *stage) get(addr string) ([]byte, error) {
	resp, err := s.http.Get("http://" + addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	return io.ReadAll(resp.Body)
}

// tell runs the script and returns what the client saw of each of the servers, given by their ports.
func (s *stage) tell(t *testing.T, name string, ports ...int) (saw []json.RawMessage) {
	t.Helper()
	args := []string{noCollection, s.script, name, control}
	for _, port := range ports {
		args = append(args, fmt.Sprintf("http://127.0.0.1:%d", port))
	}
	ctx, cancel := context.WithTimeout(context.Background(), scriptWithin)
	defer cancel()
	inside := s.h.Command("node", args...)
	cmd := exec.CommandContext(ctx, inside.Path, inside.Args[1:]...)
	cmd.Dir, cmd.Env = inside.Dir, inside.Env
	out, err := cmd.CombinedOutput()
	if err != nil {
		witness, _ := s.get(control + "/witness") // the engine may be gone
		t.Fatalf("%v (%v)\n%s\nseen by the engine: %s", err, ctx.Err(), out, witness)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &saw); err != nil || len(saw) != len(ports) {
		t.Fatalf("last line is no list of %d: %v\n%s", len(ports), err, out)
	}
	return saw
}

// awaitJobs waits until the index holds what the story leaves there: each of its requests once, in the state in which
// it must end.
func (s *stage) awaitJobs(t *testing.T, st story) {
	t.Helper()
	var got jobs
	defer func() {
		if t.Failed() {
			t.Logf("jobs of model %s: got %v, want %v", st.name, got, st.jobs)
		}
	}()
	harness.Eventually(t, within, "end of the story's jobs", func() bool {
		got = s.jobs(st.name)
		return maps.Equal(got, st.jobs)
	})
}

// jobs returns the jobs of a model.
func (s *stage) jobs(model string) jobs {
	var list struct {
		Workloads []struct {
			Model string `json:"model"`
			State string `json:"state"`
		} `json:"workloads"`
	}
	s.broker.MustCall("workloads:get-initial", nil, &list)
	found := jobs{}
	for _, j := range list.Workloads {
		if j.Model == model {
			found[j.State]++
		}
	}
	return found
}

// awaitLeft waits until the engine has seen so many clients of a model leave before their answers were whole.
func (s *stage) awaitLeft(t *testing.T, model string, n int) {
	t.Helper()
	harness.Eventually(t, within, fmt.Sprintf("%d clients of model %s have left", n, model), func() bool {
		raw, err := s.get(control + "/witness")
		var report engine.Report
		if err != nil || json.Unmarshal(raw, &report) != nil {
			return false
		}
		left := 0
		for _, r := range report.Requests {
			if r.Model == model && r.End == "left" {
				left++
			}
		}
		return left == n
	})
}
