// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/shared/facade"
)

// mute is a node that accepts connections and never says a word, until speak is
// called.
func mute(t *testing.T) (port int, speak func()) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	said := make(chan struct{})
	speak = sync.OnceFunc(func() { close(said) })
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // net/http sees a client leave only behind its body
		select {
		case <-said:
			answers(200, "late")(w, r)
		case <-r.Context().Done():
		}
	})}
	var running sync.WaitGroup
	running.Go(func() { _ = s.Serve(ln) })
	t.Cleanup(func() { _ = s.Close(); running.Wait() })
	return ln.Addr().(*net.TCPAddr).Port, speak
}

func TestADeadNodesRequestsMoveOnAndItIsPassedOver(t *testing.T) {
	r := newRigWith(t, limits{probeEvery: 100 * time.Millisecond})
	port, speak := mute(t)
	r.addAddress("a", port, "m")
	r.addNode("b", fakeEngine(t, answers(200, "from b"), "m"), "m")
	status, body, _ := r.post("/api/chat", `{"model":"m"}`)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "from b", body)
	r.awaitTrace("queued@-", "queued@a", "queued@b", "running@b", "completed@b")

	_, body, _ = r.post("/api/chat", `{"model":"m"}`)
	require.Equal(t, "from b", body)
	require.NotContains(t, r.trace()[5:], "queued@a", "a dead node is not tried while another can serve")

	speak()
	r.await("the node again, once it answers", func() bool {
		_, body, _ = r.post("/api/chat", `{"model":"m"}`)
		return body == "late"
	})
}

func TestASlowNodeIsWaitedFor(t *testing.T) {
	r := newRigWith(t, limits{probeEvery: 50 * time.Millisecond})
	asked, release := make(chan struct{}, 1000), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodGet {
			asked <- struct{}{}
			w.WriteHeader(http.StatusNotFound) // any answer is life
			return
		}
		<-release
		answers(200, "slow")(w, req)
	}))
	t.Cleanup(slow.Close)
	r.addNode("a", slow, "m")
	answered := make(chan string, 1)
	go func() { _, body, _ := r.post("/api/chat", `{"model":"m"}`); answered <- body }()
	for range 3 * silentProbes {
		<-asked
	}
	close(release)
	require.Equal(t, "slow", <-answered)
	r.awaitTrace("queued@-", "queued@a", "running@a", "completed@a")
}

func TestAStreamOfADeadNodeIsCut(t *testing.T) {
	r := newRigWith(t, limits{probeEvery: 100 * time.Millisecond})
	silent := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		if req.Method == http.MethodPost {
			w.Header().Set("Content-Type", "application/x-ndjson")
			_, _ = w.Write([]byte(`{"done":false}` + "\n"))
			_ = http.NewResponseController(w).Flush()
		}
		select {
		case <-silent:
		case <-req.Context().Done():
		}
	}))
	t.Cleanup(func() { close(silent); s.Close() })
	r.addNode("a", s, "m")
	resp, err := http.Post(r.url("/api/chat"), "application/json", strings.NewReader(`{"model":"m"}`))
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	buf := make([]byte, 100)
	n, err := resp.Body.Read(buf)
	require.NoError(t, err)
	require.Equal(t, `{"done":false}`+"\n", string(buf[:n]))
	_, err = resp.Body.Read(buf)
	require.Error(t, err, "a client must not wait for ever, nor take a part for the whole")
	r.awaitTrace("queued@-", "queued@a", "running@a", "failed@a")
}

func TestRequestsThatWaitAtARemovedNodeMoveOn(t *testing.T) {
	r := newRig(t)
	port, _ := mute(t)
	r.addAddress("a", port, "m")
	r.addNode("b", fakeEngine(t, answers(200, "from b"), "m"), "m")
	answered := make(chan string, 1)
	go func() { _, body, _ := r.post("/api/chat", `{"model":"m"}`); answered <- body }()
	r.await("the request at the first node", func() bool { return len(r.trace()) == 2 })
	r.call("ollama:node/remove-manual", facade.Selection{ID: "a"})
	require.Equal(t, "from b", <-answered)
	r.awaitTrace("queued@-", "queued@a", "queued@b", "running@b", "completed@b")
}

// A node that is dead is left out of whatever asks several, and of what can be sent
// only once.
func TestADeadNodeHoldsUpNothing(t *testing.T) {
	bounds := small
	bounds.probeEvery = 100 * time.Millisecond
	r := newRigWith(t, bounds)
	port, _ := mute(t)
	r.addAddress("a", port, "m")
	r.addNode("b", fakeEngine(t, digest, "m"), "m")
	r.post("/api/chat", `{"model":"m"}`) // finds out that it is dead
	body := prompt(mib+1, false)
	status, got, _ := r.send("/api/chat", body, false)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, sumOf(body), got)
	resp, err := http.Get(r.url("/v1/models"))
	require.NoError(t, err)
	raw, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Contains(t, string(raw), `"m"`)
}

func TestARequestThatComesBackIsRefused(t *testing.T) {
	r := newRig(t)
	around := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { // a relay that leads back
		again, err := http.NewRequestWithContext(req.Context(), req.Method, r.url(req.URL.Path), req.Body)
		if err != nil {
			t.Error(err)
			return
		}
		again.Header = req.Header
		resp, err := http.DefaultClient.Do(again)
		if err != nil {
			return // the client left
		}
		defer func() { _ = resp.Body.Close() }()
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}))
	t.Cleanup(around.Close)
	r.addNode("a", around, "m")
	status, body, _ := r.post("/api/show", `{"model":"m"}`)
	require.Equal(t, http.StatusLoopDetected, status)
	require.Contains(t, body, "has been here already")
}

func TestNodesGivenByAddressAreBounded(t *testing.T) {
	r := newRig(t)
	for i := range maxManualNodes {
		r.addAddress(fmt.Sprint(i), 1)
	}
	r.addAddress("0", 2) // one that is known
	_, err := r.conn.Call(t.Context(), "ollama:node/add-manual", facade.Node{ID: "new", Port: 1, Addresses: []string{"192.0.2.1"}})
	require.ErrorContains(t, err, "more than 512 nodes")
	_, err = r.conn.Call(t.Context(), "ollama:node/add-manual", facade.Node{ID: "0", Port: 1, Addresses: make([]string, 9)})
	require.ErrorContains(t, err, "more than 8 addresses")
}

func TestANodeIsReachedAtTheAddressThatAnswers(t *testing.T) {
	r := newRig(t)
	engine := fakeEngine(t, answers(200, "here"), "m")
	r.call("ollama:node/add-manual", facade.Node{
		ID: "a", Port: listenPort(engine), Addresses: []string{"127.0.0.9", "127.0.0.1"}, Models: []string{"m"},
	}) // an engine listens at one address of its machine only
	r.await("an answer from the second address", func() bool {
		status, body, _ := r.post("/api/chat", `{"model":"m"}`)
		return status == http.StatusOK && body == "here"
	})
}

func TestAHeaderTimeoutThatIsSetMovesRequestsOn(t *testing.T) {
	r := newRigHeaders(t, 30*time.Millisecond)
	port, _ := mute(t)
	r.own(port)
	r.addNode("b", fakeEngine(t, answers(200, "from b"), "m"), "m")
	r.addAddress("a", port, "m")
	_, body, _ := r.post("/api/chat", `{"model":"m"}`)
	require.Equal(t, "from b", body)
}

func TestHeadersWithoutContentUseUpTheBudget(t *testing.T) {
	r := newRigHeaders(t, 300*time.Millisecond) // the fifth head must arrive in it
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-req.Context().Done()
	}))
	t.Cleanup(s.Close)
	r.addNode("a", s, "m")
	status, body, _ := r.post("/api/chat", `{"model":"m"}`)
	require.Equal(t, http.StatusGatewayTimeout, status)
	require.Contains(t, body, "no response body within the first-byte budget")
}
