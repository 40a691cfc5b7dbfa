// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/shared/discovery"
	"nvpair/shared/facade"
)

// listing is an engine whose model list is written by list; it answers every POST.
func listing(t *testing.T, list http.HandlerFunc) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			list(w, r)
			return
		}
		answers(200, "served")(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// known makes an engine the own one, whose models the directory tells.
func (r *rig) known(engine *httptest.Server, models ...string) {
	r.t.Helper()
	port := listenPort(engine)
	require.NoError(r.t, r.conn.Notify("ollama:discovery:nodes", discovery.Directory{Nodes: []discovery.DirectoryNode{{
		HostUUID: "self", Name: "here", IP: "127.0.0.1", Models: models,
		Services: map[string]discovery.Service{"ol": {Port: r.port}},
	}}}))
	r.call("ollama:node/set-local-backend", facade.Backend{Port: port, Healthy: true})
}

// An engine that is loading, or answers its list with an error, has not lost its
// models.
func TestAnAnswerThatIsNoModelListIsNoInventory(t *testing.T) {
	for name, list := range map[string]http.HandlerFunc{
		"loading":        says(503, "application/json", `{"error":{"message":"Loading model"}}`),
		"error in a 200": says(200, "application/json", `{"error":"unexpected endpoint"}`),
		"no JSON":        says(200, "text/html", `<html>`),
		"not a list":     says(200, "application/json", `{"data":{"id":"x"}}`),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			asked := make(chan struct{}, 10)
			r.known(listing(t, func(w http.ResponseWriter, req *http.Request) { list(w, req); asked <- struct{}{} }), "m")
			<-asked
			status, _, _ := r.post("/api/chat", `{"model":"unknown"}`) // returns when an answer has been judged
			require.Equal(t, http.StatusBadGateway, status)
			status, body, _ := r.post("/api/chat", `{"model":"m"}`)
			require.Equal(t, http.StatusOK, status, body)
		})
	}
}

func TestAnEmptyListIsAnInventory(t *testing.T) {
	for name, body := range map[string]string{"empty": `{"object":"list","data":[]}`, "null": `{"object":"list","data":null}`} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.known(listing(t, says(200, "application/json", body)), "m")
			r.post("/api/chat", `{"model":"unknown"}`)
			status, _, _ := r.post("/api/chat", `{"model":"m"}`)
			require.Equal(t, http.StatusBadGateway, status)
		})
	}
}

// askAtOnce sends that many requests for a model; what it returns waits for the ends of their answers.
func (r *rig) askAtOnce(n int, model string) *sync.WaitGroup {
	var asking sync.WaitGroup
	for range n {
		asking.Go(func() {
			resp, err := http.Post(r.url("/api/chat"), "application/json", strings.NewReader(`{"model":"`+model+`"}`))
			if err != nil {
				r.t.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		})
	}
	return &asking
}

// Requests that wait for the engine's inventory share its answer, be it that there
// is none.
func TestManyUnknownModelsAreOneQuestion(t *testing.T) { // DEC-133
	r := newRig(t)
	var asked atomic.Int32
	r.known(listing(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}), "m")
	r.askAtOnce(20, "unknown").Wait()
	require.LessOrEqual(t, asked.Load(), int32(3), "one when it came up, one for all, one if 2 s went by")
}

func TestAModelThatWasJustPulledIsFound(t *testing.T) {
	r := newRig(t)
	var models atomic.Value
	models.Store(`{"data":[]}`)
	engine := listing(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, models.Load().(string)) })
	models.Store(`{"data":[{"id":"Fresh:latest"}]}`)
	r.known(engine)
	status, body, _ := r.post("/api/chat", `{"model":"fresh"}`)
	require.Equal(t, http.StatusOK, status, body)
	r.awaitTrace("queued@-", "queued@self", "running@self", "completed@self")
	require.Equal(t, "fresh", r.lastJob().Model, "as the client spells it")
}

func TestTheListsOfNodesThatDoNotAnswerWellAreLeftOut(t *testing.T) { // PX-87, PX-90
	r := newRig(t)
	bad := map[string]http.HandlerFunc{
		"b": says(500, "application/json", `{"data":[{"id":"no"}]}`),
		"c": says(200, "application/json", `{"data":[{"id":"no"},{"name":"no id"}]}`),
		"d": says(200, "application/json", `{"data":[{"id":"no"}]`),
		"e": says(200, "application/json", `{"error":"x"}`),
		"f": says(200, "application/json", `{"object":"list","data":null}`),
	}
	for id, list := range bad {
		r.addNode(id, listing(t, list))
	}
	r.addAddress("g", freePort(t))
	get := func(path string) (int, string, http.Header) {
		resp, err := http.Get(r.url(path))
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		raw, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(raw), resp.Header
	}
	status, body, _ := get("/v1/models")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, `{"object":"list","data":[]}`, body)
	status, body, _ = get("/api/tags")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, `{"error":"model inventory unavailable"}`, body)

	r.addNode("a", listing(t, says(200, "application/json", `{"data":[{"id":"m","x":[1]},{"id":"m"}],"models":[{"name":"N"},{"name":"n:latest"}]}`)))
	status, body, header := get("/v1/models")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, `{"object":"list","data":[{"id":"m","x":[1]}]}`, body)
	require.Empty(t, header.Get("X-Pair-Node"))
	status, body, _ = get("/api/tags")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, `{"models":[{"name":"N"}]}`, body)
}

func TestConcurrentRequestsSpreadOverEqualNodes(t *testing.T) { // PX-56 end to end
	r := newRig(t)
	var held sync.WaitGroup
	held.Add(9)
	release := make(chan struct{})
	counts := make(map[string]*atomic.Int32)
	for _, id := range []string{"a", "b", "c"} {
		n := &atomic.Int32{}
		counts[id] = n
		r.addNode(id, fakeEngine(t, func(w http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			n.Add(1)
			held.Done()
			<-release
			_, _ = io.WriteString(w, "{}")
		}), "m")
	}
	r.call("node/set-priority", map[string]any{"generation": 1, "nodes": []string{"c", "b", "a"}})
	asking := r.askAtOnce(9, "m")
	held.Wait()
	close(release)
	asking.Wait()
	for id, n := range counts {
		require.EqualValues(t, 3, n.Load(), id)
	}
}
