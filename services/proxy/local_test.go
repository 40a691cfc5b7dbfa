// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/shared/discovery"
	"nvpair/shared/facade"
	"nvpair/shared/serviceerror"
)

// several makes engines this machine's own, the first one the main one.
func (r *rig) several(engines ...int) {
	r.t.Helper()
	r.own(engines[0])
	b := facade.Backend{Port: engines[0], Healthy: true}
	for _, port := range engines[1:] {
		b.More = append(b.More, facade.LocalTarget{Port: port})
	}
	r.call("ollama:node/set-local-backend", b)
	r.post("/api/chat", `{"model":"unknown"}`) // returns when all have been asked for their models
}

// DEC-132: all engines of one dialect serve, each what it has.
func TestSeveralEnginesOfThisMachineServe(t *testing.T) {
	r := newRig(t)
	r.several(
		listenPort(fakeEngine(t, answers(200, "first"), "a", "both")),
		listenPort(fakeEngine(t, answers(200, "second"), "b", "both")),
	)
	for model, want := range map[string]string{"a": "first", "b": "second", "both": "first"} {
		status, body, header := r.post("/api/chat", `{"model":"`+model+`"}`)
		require.Equal(t, http.StatusOK, status, model)
		require.Equal(t, want, body, model)
		require.Equal(t, "self", header.Get("X-Pair-Node"), model)
	}
	_, body, _ := r.post("/api/pull", `{"model":"b"}`)
	require.Equal(t, "first", body, "what changes an engine goes to the main one")
	resp, err := http.Get(r.url("/v1/models"))
	require.NoError(t, err)
	var list struct{ Data []struct{ ID string } }
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&list))
	_ = resp.Body.Close()
	require.Len(t, list.Data, 3)
}

func TestAnEngineThatFailsIsFollowedByTheOtherOfThisMachine(t *testing.T) {
	r := newRig(t)
	r.several(
		listenPort(fakeEngine(t, answers(500, `{"error":"broken"}`), "m")),
		listenPort(fakeEngine(t, answers(200, "second"), "m")),
	)
	_, body, _ := r.post("/api/chat", `{"model":"m"}`)
	require.Equal(t, "second", body)
	r.awaitTrace("queued@-", "queued@self", "running@self", "completed@self")
}

func TestOnlyEnginesOfThisMachineAreItsOwn(t *testing.T) {
	r := newRig(t)
	for _, more := range []facade.LocalTarget{{Host: "192.0.2.1", Port: 1}, {Port: r.port}, {Host: "::1", Port: r.port}} {
		_, err := r.conn.Call(t.Context(), "ollama:node/set-local-backend", facade.Backend{
			Port: 1, Healthy: true, More: []facade.LocalTarget{more},
		})
		require.Error(t, err, "%v", more)
	}
}

func TestAResponseIsContinuedWhereItWasMade(t *testing.T) { // DEC-142
	r := newRig(t)
	made := map[string]string{"a": "resp_a", "b": "resp_b"}
	for id, response := range made {
		r.addNode(id, fakeEngine(t, answers(200, `{"id":"`+response+`","made_by":"`+id+`"}`), "m"), "m")
	}
	r.call("ollama:node/select", facade.Selection{ID: "b"})
	_, body, _ := r.post("/v1/responses", `{"model":"m"}`)
	require.Contains(t, body, `"made_by":"b"`)
	r.call("ollama:node/select", facade.Selection{})
	for _, previous := range []string{"resp_b", "resp_b"} {
		_, body, _ = r.post("/v1/responses", `{"model":"m","previous_response_id":"`+previous+`"}`)
		require.Contains(t, body, `"made_by":"b"`)
	}
	_, body, _ = r.post("/v1/responses", `{"model":"m","previous_response_id":"resp_unknown"}`)
	require.Contains(t, body, `"made_by":"a"`, "an unknown one is routed as any other")
	_, body, _ = r.post("/v1/chat/completions", `{"model":"m","previous_response_id":"resp_b"}`)
	require.Contains(t, body, `"made_by":"a"`)
}

func TestTheNewestResponsesAreRemembered(t *testing.T) {
	var a affinity
	x := &exchange{r: &http.Request{URL: mustURL("/v1/responses")}, status: http.StatusOK}
	for i := range 3 * maxResponses / 2 {
		n := a.watch(x, place{node: "n"})
		for _, part := range []string{"event: response.created\n", "data: {\"i", fmt.Sprintf(`d":"resp_%d"`, i), "more"} {
			n.write([]byte(part))
		}
	}
	require.Len(t, a.made, maxResponses)
	_, known := a.of(x, []byte(fmt.Sprintf(`{"previous_response_id":"resp_%d"}`, 3*maxResponses/2-1)))
	require.True(t, known)
	_, known = a.of(x, []byte(`{"previous_response_id":"resp_0"}`))
	require.False(t, known)
}

// An alias is what OLLAMA_HOST told this machine's clients.
func TestAFacadeServesItsAliases(t *testing.T) {
	r := newBareRig(t)
	port := freePort(t)
	addrs := []string{fmt.Sprintf("127.0.0.1:%d", port), fmt.Sprintf("[::1]:%d", port), fmt.Sprintf("localhost:%d", port)}
	enable := facade.Enable{Engine: "ollama", Port: r.port, IgnorePersistedPort: true, AliasAddresses: addrs}
	for range 2 { // the second finds it there
		require.JSONEq(t, fmt.Sprintf(`{"engine":"ollama","port":%d,"aliases":[%q,%q]}`, r.port, addrs[0], addrs[1]), string(r.call("facade/enable", enable)))
	}
	require.Len(t, r.noted("ollama:errors:clear"), 1)
	r.own(listenPort(fakeEngine(t, answers(200, "served"), "m")))
	for _, addr := range addrs[:2] {
		resp, err := http.Post("http://"+addr+"/api/chat", "application/json", strings.NewReader(`{"model":"m"}`))
		require.NoError(t, err)
		_ = resp.Body.Close()
		require.Equal(t, http.StatusOK, resp.StatusCode, addr)
	}
	_, err := r.conn.Call(t.Context(), "ollama:node/set-local-backend", facade.Backend{Port: port, Healthy: true})
	require.Error(t, err, "an alias is no engine")
	next := freePort(t)
	r.call("ollama:set-port", facade.Port{Port: next})
	resp, err := http.Post("http://"+addrs[0]+"/api/chat", "application/json", strings.NewReader(`{"model":"m"}`))
	require.NoError(t, err, "aliases do not move")
	_ = resp.Body.Close()
}

func TestAnAliasThatIsTakenHurtsNobody(t *testing.T) {
	r := newBareRig(t)
	owner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = owner.Close() }()
	port := owner.Addr().(*net.TCPAddr).Port
	bound := r.call("facade/enable", facade.Enable{
		Engine: "ollama", Port: r.port, IgnorePersistedPort: true,
		AliasAddresses: []string{fmt.Sprintf("[::1]:%d", port), fmt.Sprintf("127.0.0.1:%d", port)},
	})
	require.JSONEq(t, fmt.Sprintf(`{"engine":"ollama","port":%d}`, r.port), string(bound))
	var e serviceerror.ServiceError
	reports := r.noted("ollama:errors:report")
	require.Len(t, reports, 1)
	require.NoError(t, json.Unmarshal(reports[0], &e))
	require.Equal(t, "ollama-proxy:ollama-host-alias-blocked", e.ID)
	require.Contains(t, e.Message, fmt.Sprintf("127.0.0.1:%d", port))
	require.Contains(t, e.Message, "No process was stopped")
	_, err = net.Dial("tcp", fmt.Sprintf("[::1]:%d", port))
	require.Error(t, err, "all of them or none")
}

func TestOnlyLoopbackCanBeAnAlias(t *testing.T) {
	r := newBareRig(t)
	for _, addrs := range [][]string{
		{"0.0.0.0:5000"}, {"192.0.2.1:5000"}, {"5000"}, {"127.0.0.1:0"}, {"127.0.0.1:70000"}, {"[::ffff:127.0.0.1]:5000"},
		{"127.0.0.1:5000", "127.0.0.1:5001"}, {"127.0.0.1:5000", "[::1]:5000", "127.0.0.2:5000"}, {fmt.Sprintf("127.0.0.1:%d", r.port)},
	} {
		_, err := r.conn.Call(t.Context(), "facade/enable", facade.Enable{
			Engine: "ollama", Port: r.port, IgnorePersistedPort: true, AliasAddresses: addrs,
		})
		require.ErrorContains(t, err, "alias address", "%v", addrs)
	}
	_, err := r.conn.Call(t.Context(), "facade/enable", facade.Enable{
		Engine: "lmstudio", Port: r.port, IgnorePersistedPort: true, AliasAddresses: []string{"127.0.0.1:5000"},
	})
	require.Error(t, err)
	r.call("facade/enable", facade.Enable{Engine: "ollama", Port: r.port, IgnorePersistedPort: true}) // nothing was left
}

func TestANodeThatLeavesIsReported(t *testing.T) { // PX-32
	r := newRig(t)
	peer := discovery.DirectoryNode{
		HostUUID: "p", Name: "peer", Trusted: true, IP: "192.0.2.7", IPs: []string{"192.0.2.7", "fd00::7"},
		Services: map[string]discovery.Service{"ol": {Port: 11434}}, Models: []string{"x"},
		ModelsByEngine: map[string][]string{"ollama": {"m"}, "lmstudio": {"x"}},
	}
	push := func(nodes ...discovery.DirectoryNode) {
		require.NoError(t, r.conn.Notify("ollama:discovery:nodes", discovery.Directory{Nodes: nodes}))
	}
	push(peer)
	var list facade.Nodes
	require.NoError(t, json.Unmarshal(r.call("ollama:nodes/list", nil), &list))
	require.Equal(t, []facade.Node{{
		ID: "p", Host: "peer", Port: 11434, IP: "192.0.2.7", Addresses: []string{"192.0.2.7", "fd00::7"},
		TXT: []string{"ip=192.0.2.7", "ips=192.0.2.7,fd00::7"}, Models: []string{"m"},
	}}, list.Nodes, "another engine's models do not count")
	push(peer)
	push()
	r.await("its end", func() bool { return len(r.noted("ollama:errors:report")) == 1 })
	require.Contains(t, string(r.noted("ollama:errors:report")[0]), `"id":"ollama-proxy:upstream-unreachable:p"`)
	require.True(t, slices.Equal([]int{1, 0, 1}, []int{
		len(r.noted("ollama:errors:clear")), len(r.noted("ollama:node/updated")), len(r.noted("ollama:node/removed")),
	}), "what is the same again is no news")

	stranger := peer
	stranger.HostUUID, stranger.Trusted = "q", false
	push(stranger)
	push()
	r.await("its end", func() bool { return len(r.noted("ollama:node/removed")) == 2 })
	require.Len(t, r.noted("ollama:errors:report"), 1, "nobody misses a node that was never used")
	status, _, _ := r.post("/api/chat", `{"model":"m"}`)
	require.Equal(t, http.StatusBadGateway, status)
}
