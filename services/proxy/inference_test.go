// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheOwnEngineIsAskedForItsModelsAndServes(t *testing.T) {
	r := newRig(t)
	var got string
	r.ownEngine(fakeEngine(t, func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		got = string(body)
		_, _ = io.WriteString(w, `{"done":true}`)
	}, "tiny:latest"))
	status, body, header := r.post("/api/chat", `{"model":"TINY","stream":false}`)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, `{"done":true}`, body)
	require.Equal(t, `{"model":"TINY","stream":false}`, got, "the engine gets the client's bytes")
	require.Equal(t, "self", header.Get("X-Pair-Node"))
	r.awaitTrace("queued@-", "queued@self", "running@self", "completed@self")
}

func TestAFailedOwnerIsFollowedByTheNext(t *testing.T) {
	r := newRig(t)
	r.addNode("a", fakeEngine(t, answers(http.StatusInternalServerError, "broken")), "m")
	r.addNode("b", fakeEngine(t, answers(http.StatusOK, "fine")), "m")
	status, body, _ := r.post("/api/generate", `{"model":"m"}`)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "fine", body)
	r.awaitTrace("queued@-", "queued@a", "queued@b", "running@b", "completed@b")
}

func TestAClientErrorOfTheEngineIsTheAnswer(t *testing.T) {
	r := newRig(t)
	r.addNode("a", fakeEngine(t, answers(http.StatusBadRequest, "no")), "m")
	status, body, _ := r.post("/v1/chat/completions", `{"model":"m"}`)
	require.Equal(t, http.StatusBadRequest, status)
	require.Equal(t, "no", body)
	r.awaitTrace("queued@-", "queued@a", "running@a", "failed@a")
}

func TestAModelNobodyHasIsRefusedInTheDialectOfThePath(t *testing.T) {
	r := newRig(t)
	for path, want := range map[string]string{
		"/api/chat":            `{"error":"no available node advertises the requested model"}`,
		"/v1/chat/completions": `{"error":{"code":null,"message":"no available node advertises the requested model","param":null,"type":"api_error"}}`,
		"/v1/messages":         `{"error":{"message":"no available node advertises the requested model","type":"api_error"},"type":"error"}`,
	} {
		status, body, _ := r.post(path, `{"model":"nope"}`)
		require.Equal(t, http.StatusBadGateway, status)
		require.Equal(t, want, body)
	}
	require.Empty(t, r.trace())
}

func TestAStreamArrivesAsItIsMade(t *testing.T) {
	r := newRig(t)
	next := make(chan struct{})
	r.addNode("a", fakeEngine(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			<-next
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}), "m")
	resp, err := http.Post(r.url("/v1/chat/completions"), "application/json", strings.NewReader(`{"model":"m"}`))
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	in := bufio.NewReader(resp.Body)
	for i := range 3 {
		line, err := in.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("data: %d\n", i), line)
		_, _ = in.ReadString('\n')
		next <- struct{}{}
	}
	rest, err := io.ReadAll(in)
	require.NoError(t, err)
	require.Equal(t, "data: [DONE]\n\n", string(rest))
	r.awaitTrace("queued@-", "queued@a", "running@a", "completed@a")
}

func TestAStreamWithoutItsTerminatorIsAFailedJob(t *testing.T) {
	r := newRig(t)
	r.addNode("a", fakeEngine(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {}\n\n")
	}), "m")
	status, _, _ := r.post("/v1/chat/completions", `{"model":"m"}`)
	require.Equal(t, http.StatusOK, status)
	r.awaitTrace("queued@-", "queued@a", "running@a", "failed@a")
}

func TestAnEngineThatDiesInMidStreamCutsTheClient(t *testing.T) {
	r := newRig(t)
	r.addNode("a", fakeEngine(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "begin")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}), "m")
	resp, err := http.Post(r.url("/api/chat"), "application/json", strings.NewReader(`{"model":"m"}`))
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	_, err = io.ReadAll(resp.Body)
	require.Error(t, err, "a cut answer must not look whole")
	r.awaitTrace("queued@-", "queued@a", "running@a", "failed@a")
}

func TestAClientThatLeavesEndsItsJobAndTheEnginesWork(t *testing.T) {
	r := newRig(t)
	began, left := make(chan struct{}), make(chan struct{})
	r.addNode("a", fakeEngine(t, func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		close(began)
		<-req.Context().Done()
		close(left)
	}), "m")
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url("/api/chat"), strings.NewReader(`{"model":"m"}`))
	require.NoError(t, err)
	go func() {
		<-began
		cancel()
	}()
	_, err = http.DefaultClient.Do(req)
	require.ErrorIs(t, err, context.Canceled)
	select {
	case <-left:
	case <-time.After(10 * time.Second):
		t.Fatal("the engine was not told")
	}
	r.awaitTrace("queued@-", "queued@a", "cancelled@a")
}

func TestStrangersAndForeignHostsAreRefused(t *testing.T) {
	r := newRig(t)
	req, err := http.NewRequest(http.MethodGet, r.url("/api/version"), nil)
	require.NoError(t, err)
	req.Host = "evil.example"
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	_ = resp.Body.Close()
	require.Equal(t, http.StatusMisdirectedRequest, resp.StatusCode)

	req.Host = "localhost:1"
	req.Header.Set("X-NVPAIR-Engine-Identity-Probe", "1")
	resp, err = http.DefaultClient.Do(req)
	require.NoError(t, err)
	_ = resp.Body.Close()
	require.Equal(t, http.StatusConflict, resp.StatusCode)
}

func TestListsAreMergedInOrder(t *testing.T) {
	r := newRig(t)
	r.addNode("a", fakeEngine(t, answers(200, ""), "x", "y"), "x", "y")
	r.addNode("b", fakeEngine(t, answers(200, ""), "y", "z"), "y", "z")
	resp, err := http.Get(r.url("/v1/models"))
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, `{"object":"list","data":[{"id":"x"},{"id":"y"},{"id":"z"}]}`, string(raw))
}

func TestARequestThatChangesAnEngineNeverReachesAnotherNode(t *testing.T) {
	r := newRig(t)
	r.addNode("a", fakeEngine(t, func(http.ResponseWriter, *http.Request) { t.Error("reached") }), "m")
	status, _, _ := r.post("/api/pull", `{"model":"m"}`)
	require.Equal(t, http.StatusBadGateway, status)
}

func TestAFacadeIsNoBackend(t *testing.T) {
	r := newRig(t)
	_, err := r.conn.Call(t.Context(), "ollama:node/set-local-backend", map[string]any{"port": r.port, "healthy": true})
	require.ErrorContains(t, err, "is a facade's own")
}
