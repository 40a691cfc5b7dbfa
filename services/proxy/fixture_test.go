// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
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
	stop func() // ends the worker and waits for it

	mu    sync.Mutex // guards jobs and notes
	jobs  []workload.Info
	notes []note
	some  chan struct{} // capacity 1: something arrived
}

// note is any notification but those of jobs.
type note struct {
	method string
	params json.RawMessage
}

// newRig starts a proxy with Ollama's facade on a free port.
func newRig(t *testing.T) *rig { return newRigWith(t, limits{}) }

func newRigWith(t *testing.T, bounds limits) *rig { return startRig(t, Config{limits: bounds}) }

// newRigHeaders is a rig whose nodes have so much time for the head of an answer.
func newRigHeaders(t *testing.T, d time.Duration) *rig {
	return startRig(t, Config{HeaderTimeout: d, limits: limits{firstBackoff: time.Millisecond}})
}

func startRig(t *testing.T, cfg Config) *rig {
	r := startBareRig(t, cfg)
	r.call("facade/enable", facade.Enable{Engine: "ollama", Port: r.port, IgnorePersistedPort: true})
	return r
}

// newBareRig starts a proxy without a facade; r.port is free.
func newBareRig(t *testing.T) *rig { return startBareRig(t, Config{}) }

func startBareRig(t *testing.T, cfg Config) *rig {
	r := &rig{t: t, some: make(chan struct{}, 1)}
	near, far := net.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	cfg.Config = worker.Config{
		Link: far, Version: "test",
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Level: new(slog.LevelVar),
	}
	cfg.DataDir, cfg.AllowedHosts = t.TempDir(), []string{"mine.example"}
	go func() {
		ended <- Run(ctx, cfg)
	}()
	r.conn = jsonrpc.New(near, jsonrpc.Config{Handle: r.receive})
	served := make(chan struct{})
	go func() { defer close(served); _ = r.conn.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		<-served
		require.NoError(t, <-ended)
	})
	t.Cleanup(func() {
		r.stop()
		http.DefaultClient.CloseIdleConnections()
	})
	r.port = freePort(t)
	return r
}

// dial opens a raw connection to the facade.
func (r *rig) dial() *client {
	r.t.Helper()
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", r.port))
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return &client{Conn: c, t: r.t, in: bufio.NewReader(c)}
}

// client is a client that writes its requests byte by byte as the test says.
type client struct {
	net.Conn
	t  *testing.T
	in *bufio.Reader
}

func (c *client) say(s string) {
	c.t.Helper()
	_, err := io.WriteString(c, s)
	require.NoError(c.t, err)
}

// answer reads one answer whole.
func (c *client) answer(method string) (*http.Response, string) {
	c.t.Helper()
	resp, err := http.ReadResponse(c.in, &http.Request{Method: method})
	require.NoError(c.t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(c.t, err)
	return resp, string(body)
}

func mustURL(s string) *url.URL {
	u, err := url.Parse(s)
	if err != nil {
		panic(err) // a constant of a test
	}
	return u
}

func freePort(t *testing.T) int {
	ln, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	return ln.Addr().(*net.TCPAddr).Port
}

func (r *rig) receive(req *jsonrpc.Request) {
	if !strings.HasPrefix(req.Method, "workload:") {
		r.mu.Lock()
		r.notes = append(r.notes, note{req.Method, bytes.Clone(req.Params)})
		r.mu.Unlock()
		r.arrived()
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
	r.arrived()
}

func (r *rig) arrived() {
	select {
	case r.some <- struct{}{}:
	default:
	}
}

// await waits until something that arrives on the link makes done true.
func (r *rig) await(what string, done func() bool) {
	r.t.Helper()
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	for !done() {
		select {
		case <-r.some:
		case <-timer.C:
			require.FailNow(r.t, what, "trace %v", r.trace())
		}
	}
}

// ended waits for the n-th proxy/request and returns it.
func (r *rig) ended(n int) facade.RequestEnded {
	r.t.Helper()
	var e facade.RequestEnded
	r.await("the end of a request", func() bool {
		all := r.noted("ollama:proxy/request")
		if len(all) < n {
			return false
		}
		require.NoError(r.t, json.Unmarshal(all[n-1], &e))
		return true
	})
	return e
}

// noted returns the params of all notifications of that method.
func (r *rig) noted(method string) []json.RawMessage {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []json.RawMessage
	for _, n := range r.notes {
		if n.method == method {
			list = append(list, n.params)
		}
	}
	return list
}

// lastJob returns the newest event of a job.
func (r *rig) lastJob() workload.Info {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.jobs[len(r.jobs)-1]
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
	r.await(fmt.Sprintf("these job events: %v", want), func() bool { return len(r.trace()) >= len(want) })
	require.Equal(r.t, want, r.trace())
}

// addNode adds an engine as a node given by address.
func (r *rig) addNode(id string, engine *httptest.Server, models ...string) {
	r.addAddress(id, listenPort(engine), models...)
}

func listenPort(s *httptest.Server) int { return s.Listener.Addr().(*net.TCPAddr).Port }

// addAddress adds a node at a port of this machine, where nothing may listen.
func (r *rig) addAddress(id string, port int, models ...string) {
	r.call("ollama:node/add-manual", facade.Node{ID: id, Port: port, Addresses: []string{"127.0.0.1"}, Models: models})
}

// ownEngine makes an engine this machine's own, under the id "self".
func (r *rig) ownEngine(engine *httptest.Server) {
	r.own(listenPort(engine))
}

// own makes whatever listens on that port this machine's own engine.
func (r *rig) own(port int) {
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
