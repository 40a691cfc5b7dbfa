// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/tests/engine"
	"nvpair/tests/harness"
)

// inference is a broker with an engine on a host of its own, and a client of each.
type inference struct {
	t      *testing.T
	h      *harness.Host
	p      *harness.Proc
	c      *harness.Client
	http   *http.Client
	engine *engine.Engine // this machine's own, in the test's process
	jobs   *jobLog
}

// startInference starts an engine and a tree in front of it, and returns once the facade lists its models.
func startInference(t *testing.T, cfg engine.Config) *inference {
	t.Helper()
	h := harness.NewHost(t, "alpha")
	return startInferenceWith(t, h, engineOn(t, h, "127.0.0.1:11435", cfg))
}

// startInferenceWith is startInference with an engine that runs already, nil for a program of the test's.
func startInferenceWith(t *testing.T, h *harness.Host, e *engine.Engine) *inference {
	t.Helper()
	n := newInference(t, h, e)
	n.awaitModel(11434)
	return n
}

// startPlain is startInference with binaries without the race detector: for what their memory is compared with bounds
// that hold for the shipped ones, or that takes minutes otherwise.
func startPlain(t *testing.T, cfg engine.Config) *inference {
	t.Helper()
	h := harness.NewHost(t, "alpha")
	e := engineOn(t, h, "127.0.0.1:11435", cfg)
	cmd := h.Command(filepath.Join(harness.PlainBin(t), "nvpair-ui-broker"))
	cmd.Dir = harness.PlainBin(t)
	p := h.Start(cmd)
	c := p.Client(t)
	c.Await("app:ready", inferenceWithin, nil)
	n := follows(t, h, e, p, c)
	n.awaitModel(11434)
	return n
}

// newInference starts the tree and waits for no facade.
func newInference(t *testing.T, h *harness.Host, e *engine.Engine, args ...string) *inference {
	t.Helper()
	p, c := harness.StartBroker(t, h, args...)
	return follows(t, h, e, p, c)
}

func follows(t *testing.T, h *harness.Host, e *engine.Engine, p *harness.Proc, c *harness.Client) *inference {
	t.Helper()
	n := &inference{t: t, h: h, engine: e, p: p, c: c, http: clientOf(t, h)}
	t.Cleanup(func() { // before the host looks for what is left
		_ = n.p.Stdin.Close()
		if status := n.p.AwaitExit(endWithin); status != 0 && status != 137 {
			t.Errorf("the broker ended with status %d", status)
		}
	})
	n.jobs = followJobs(n.c)
	return n
}

// engineOn starts an engine in the test's process that listens on a host.
func engineOn(t *testing.T, h *harness.Host, addr string, cfg engine.Config) *engine.Engine {
	t.Helper()
	require.NoError(t, h.Do(func() (err error) {
		cfg.Listener, err = net.Listen("tcp", addr)
		return err
	}))
	return engine.StartTest(t, cfg)
}

// awaitModel waits until a facade lists the engine's models, which makes no job.
func (n *inference) awaitModel(port int) {
	n.t.Helper()
	harness.Eventually(n.t, inferenceWithin, fmt.Sprintf("models at the facade on port %d", port), func() bool {
		resp, err := n.http.Get(fmt.Sprintf("http://127.0.0.1:%d/v1/models", port))
		if err != nil {
			return false
		}
		defer func() { _ = resp.Body.Close() }()
		raw, err := io.ReadAll(resp.Body)
		return err == nil && strings.Contains(string(raw), "demo")
	})
}

// addNode starts another engine on the host and gives it to Ollama's facade as a node with an address.
func (n *inference) addNode(id string, cfg engine.Config) *engine.Engine {
	n.t.Helper()
	e := engineOn(n.t, n.h, "127.0.0.1:0", cfg)
	_, port, err := net.SplitHostPort(e.Addr())
	require.NoError(n.t, err)
	number, err := strconv.Atoi(port)
	require.NoError(n.t, err)
	models := []string{}
	for _, m := range cfg.Models {
		models = append(models, m.Name)
	}
	n.c.MustCall("ollama-proxy:node/add-manual", map[string]any{
		"id": id, "host": id, "port": number, "addresses": []string{"127.0.0.1"}, "models": models}, nil)
	return e
}

// awaitEngine waits for a report of the engine that satisfies ok.
func (n *inference) awaitEngine(what string, ok func(engine.Report) bool) engine.Report {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), inferenceWithin)
	defer cancel()
	r, err := n.engine.AwaitWitness(ctx, ok)
	require.NoError(n.t, err, "%s: %d requests, %d open", what, r.Total, r.Open)
	return r
}

// running counts the requests that an engine works on, without the looks at its models.
func running(r engine.Report) (open int) {
	for _, record := range r.Requests {
		if record.Method == http.MethodPost && record.End == "open" {
			open++
		}
	}
	return open
}

// requireServed proves that the next request is answered whole.
func (n *inference) requireServed(port int) {
	n.t.Helper()
	status, body := chat(n.http, port, "demo")
	require.Equal(n.t, http.StatusOK, status, body)
	require.Contains(n.t, body, "data: [DONE]")
}

// stream is an answer that has begun.
type stream struct {
	resp *http.Response
	in   *bufio.Reader
}

// openStreams asks for that many answers at once and returns when each has begun.
func openStreams(t *testing.T, client *http.Client, port, count int) []*stream {
	t.Helper()
	streams := make([]*stream, count)
	var wg sync.WaitGroup
	for i := range streams {
		wg.Go(func() {
			s, err := openStream(client, port)
			if err != nil {
				t.Errorf("stream %d: %v", i, err)
			}
			streams[i] = s
		})
	}
	wg.Wait()
	t.Cleanup(func() { closeStreams(streams) })
	require.False(t, t.Failed(), "not all streams have begun")
	return streams
}

// openStream asks for an answer and reads its first byte.
func openStream(client *http.Client, port int) (*stream, error) {
	resp, err := client.Post(fmt.Sprintf("http://127.0.0.1:%d/v1/chat/completions", port), "application/json",
		strings.NewReader(`{"model":"demo","stream":true,"messages":[{"role":"user","content":"hello"}]}`))
	if err != nil {
		return nil, err
	}
	s := &stream{resp, bufio.NewReader(resp.Body)}
	if _, err := s.in.ReadByte(); err != nil || resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("status %d: %w", resp.StatusCode, err)
	}
	return s, nil
}

// closeStreams makes the clients of all streams leave.
func closeStreams(streams []*stream) {
	for _, s := range streams {
		if s != nil {
			_ = s.resp.Body.Close()
		}
	}
}

// endings reads all streams to their ends and counts those that are whole and those that are cut.
func endings(streams []*stream) (whole, cut int) {
	for _, s := range streams {
		raw, err := io.ReadAll(s.in)
		if err == nil && strings.Contains(string(raw), "data: [DONE]") {
			whole++
		} else {
			cut++
		}
	}
	return whole, cut
}
