// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"nvpair/internal/jsonrpc"
	"nvpair/internal/worker"
	"nvpair/shared/discovery"
	"nvpair/shared/facade"
	"nvpair/shared/workload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a proxy whose link ends in the test, with one facade.
type rig struct {
	t    *testing.T
	conn *jsonrpc.Conn
	port int

	mu   sync.Mutex // guards jobs
	jobs []workload.Info
	some chan struct{} // capacity 1: something arrived
}

// newRig starts a proxy with Ollama's facade on a free port.
func newRig(t *testing.T) *rig {
	r := &rig{t: t, some: make(chan struct{}, 1)}
	near, far := net.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Config{
			Config: worker.Config{
				Link: far, Version: "test",
				Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Level: new(slog.LevelVar),
			},
			DataDir: t.TempDir(),
		})
	}()
	r.conn = jsonrpc.New(near, jsonrpc.Config{Handle: r.receive})
	served := make(chan struct{})
	go func() { defer close(served); _ = r.conn.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-served
		require.NoError(t, <-ended)
		http.DefaultClient.CloseIdleConnections()
	})
	r.port = freePort(t)
	r.call("facade/enable", facade.Enable{Engine: "ollama", Port: r.port, IgnorePersistedPort: true})
	return r
}

func freePort(t *testing.T) int {
	ln, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	return ln.Addr().(*net.TCPAddr).Port
}

func (r *rig) receive(req *jsonrpc.Request) {
	if !strings.HasPrefix(req.Method, "workload:") {
		return
	}
	var e workload.Event
	var info workload.Info
	if json.Unmarshal(req.Params, &e) != nil || json.Unmarshal(e.Info, &info) != nil {
		r.t.Errorf("undecodable job event %s", req.Params)
		return
	}
	r.mu.Lock()
	r.jobs = append(r.jobs, info)
	r.mu.Unlock()
	select {
	case r.some <- struct{}{}:
	default:
	}
}

func (r *rig) call(method string, params any) json.RawMessage {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	raw, err := r.conn.Call(ctx, method, params)
	require.NoError(r.t, err, method)
	return raw
}

// trace returns the events of all jobs as state@place.
func (r *rig) trace() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []string
	for _, j := range r.jobs {
		place := j.ScheduledOn
		if place == "" {
			place = "-"
		}
		list = append(list, j.State+"@"+place)
	}
	return list
}

// awaitTrace waits for exactly these events.
func (r *rig) awaitTrace(want ...string) {
	r.t.Helper()
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	for len(r.trace()) < len(want) {
		select {
		case <-r.some:
		case <-timer.C:
			require.Equal(r.t, want, r.trace())
		}
	}
	require.Equal(r.t, want, r.trace())
}

// addNode adds an engine as a node given by address.
func (r *rig) addNode(id string, engine *httptest.Server, models ...string) {
	u, err := url.Parse(engine.URL)
	require.NoError(r.t, err)
	port, err := strconv.Atoi(u.Port())
	require.NoError(r.t, err)
	r.call("ollama:node/add-manual", facade.Node{
		ID: id, Port: port, Addresses: []string{u.Hostname()}, Models: models,
	})
}

// ownEngine makes an engine this machine's own, under the id "self".
func (r *rig) ownEngine(engine *httptest.Server) {
	u, err := url.Parse(engine.URL)
	require.NoError(r.t, err)
	port, err := strconv.Atoi(u.Port())
	require.NoError(r.t, err)
	require.NoError(r.t, r.conn.Notify("ollama:discovery:nodes", discovery.Directory{Nodes: []discovery.DirectoryNode{{
		HostUUID: "self", Name: "here", IP: "127.0.0.1", Services: map[string]discovery.Service{"ol": {Port: r.port}},
	}}}))
	r.call("ollama:node/set-local-backend", facade.Backend{Port: port, Healthy: true})
}

func (r *rig) url(path string) string { return fmt.Sprintf("http://127.0.0.1:%d%s", r.port, path) }

func (r *rig) post(path, body string) (int, string, http.Header) {
	r.t.Helper()
	resp, err := http.Post(r.url(path), "application/json", strings.NewReader(body))
	require.NoError(r.t, err)
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	return resp.StatusCode, string(raw), resp.Header
}

// fakeEngine is a stand-in: an engine that answers every POST with handle and lists
// the models.
func fakeEngine(t *testing.T, handle http.HandlerFunc, models ...string) *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		rows := []map[string]string{}
		for _, m := range models {
			rows = append(rows, map[string]string{"id": m})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"object": "list", "data": rows})
	})
	mux.HandleFunc("POST /", handle)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func answers(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}
