// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/tests/harness"
)

// startBrokerAlone starts a broker that finds the named workers only.
func startBrokerAlone(t *testing.T, h *harness.Host, binaries ...string) (*harness.Proc, *harness.Wire) {
	t.Helper()
	dir := filepath.Join(h.Dir, "installed")
	require.NoError(t, os.Mkdir(dir, 0o700))
	for _, binary := range binaries {
		require.NoError(t, os.Symlink(filepath.Join(harness.Bin(t), binary), filepath.Join(dir, binary)))
	}
	cmd := h.Command("nvpair-ui-broker")
	cmd.Dir = dir
	p := h.Start(cmd)
	w := p.Wire(t)
	uiBroker().opened(t, w)
	return p, w
}

// count returns how many of the frames so far are notifications of that method.
func count(w *harness.Wire, method string) int {
	n := 0
	for _, f := range w.Frames() {
		if f.Method == method {
			n++
		}
	}
	return n
}

func TestReadyIsTheFirstFrameHoweverEarlyTheClientAsks(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	cmd := h.Command("nvpair-ui-broker")
	cmd.Dir = harness.Bin(t)
	p := h.Start(cmd)
	w := p.Wire(t)
	const requests = 200 // they fit the pipe
	for i := range requests {
		w.Send(harness.RequestLine(strconv.Itoa(i), []string{"ping", "discovery:subscribe", "errors:get-initial",
			"settings/get-force-ports"}[i%4], ""))
	}
	w.Send(harness.RequestLine("", "errors:report", `{"id":"early","message":"m"}`))
	uiBroker().opened(t, w)
	answered := map[string]int{}
	for len(answered) < requests {
		if f := w.Next(); f.Method == "" {
			require.Nil(t, f.Error, f.Line)
			answered[string(f.ID)]++
		}
	}
	uiBroker().endsWithItsInput(t, h, p)
	w.AwaitEnd(answerWithin)
	require.Equal(t, 1, count(w, "app:ready"))
	for id, times := range answered {
		require.Equal(t, 1, times, id)
	}
}

func TestBadFramesAreLoggedAtMostOnceASecond(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	p, w := uiBroker().start(t, h)
	begin := time.Now()
	const each = 30
	long := strings.Repeat("x", uiBroker().limit+1)
	for i := range each {
		w.Write(strings.Repeat("no frame\n", 1000) + long + "\n")
		require.NotNil(t, w.Call(strconv.Itoa(i), "ping", "").Result)
	}
	uiBroker().endsWithItsInput(t, h, p)
	most := 1 + int(time.Since(begin)/time.Second)
	for _, line := range []string{"WARN malformed frame skipped link=client", "WARN frame over the limit skipped link=client"} {
		n := strings.Count(p.Stderr(), line)
		require.GreaterOrEqual(t, n, 1, line)
		require.LessOrEqual(t, n, most, line)
	}
	require.Less(t, len(p.Stderr()), 100_000)
}

func TestIdsComeBackByteForByte(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	p, w := uiBroker().start(t, h)
	for _, id := range []string{
		"0", "1", "-3", "-0", "1.5", "1.50", "1e3", "1E+400", "9007199254740993", "123456789012345678901234567890",
		`""`, `"x"`, `"1"`, `"\u0041\/"`, `"ä😀"`, `"\ud800"`, `" "`, "true", "false", "[]", `[1, "a"]`,
		`{"a":1}`, `{ "b" : 1.0, "a" : null }`, `"` + strings.Repeat("long", 10_000) + `"`,
	} {
		for _, method := range []string{
			"ping",                     // answered by the broker
			"settings/get-force-ports", // relayed
			"settings/no-such",         // relayed, an error
			"errors:get-initial",       // passed on
			"engine:status",            // nobody there
			"no-such",                  // refused
		} {
			w.Send(harness.RequestLine(id, method, ""))
			require.Equal(t, id, string(w.Next().ID), method)
		}
		w.Send(`{"jsonrpc":"1.0","id":` + id + `,"method":"ping"}`)
		f := w.Next()
		require.Equal(t, id, string(f.ID))
		require.Equal(t, &harness.ErrorObject{Code: -32600, Message: "invalid request"}, f.Error)
	}
	uiBroker().endsWithItsInput(t, h, p)
}

func TestEveryPipelinedRequestIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	p, w := uiBroker().start(t, h)
	methods := []string{"ping", "settings/get-force-ports", "ping", "errors:get-initial", "ping", "discovery:get-nodes",
		"settings/no-such", "no-such"}
	const requests = 20_000
	for i := range requests {
		w.Send(harness.RequestLine(strconv.Itoa(i), methods[i%len(methods)], `{"n":`+strconv.Itoa(i)+`}`))
	}
	answers := make([]int, requests)
	last := make(map[string]int) // id of the newest answer by method
	for range requests {
		f := w.Next()
		require.Empty(t, f.Method, f.Line)
		i, err := strconv.Atoi(string(f.ID))
		require.NoError(t, err)
		answers[i]++
		method := methods[i%len(methods)]
		switch {
		case f.Error == nil:
		case f.Error.Code == -32000: // more are waiting than a link's bound
			require.Contains(t, []string{"settings call failed: too many calls are waiting",
				"errors:get-initial failed: too many calls are waiting"}, f.Error.Message)
			continue // at once, before those that wait
		default:
			require.Equal(t, -32601, f.Error.Code, f.Line)
			require.Equal(t, "method not found: "+method, f.Error.Message)
		}
		require.GreaterOrEqual(t, i, last[method], "%s answered out of order", method)
		last[method] = i
	}
	for i, n := range answers {
		require.Equal(t, 1, n, "request %d", i)
	}
	uiBroker().endsWithItsInput(t, h, p)
	w.AwaitEnd(answerWithin)
	require.Len(t, w.Frames(), 1+requests)
}

func TestALargeValueIsRelayedUnchanged(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	p, w := uiBroker().start(t, h)
	for _, tt := range []struct{ name, piece, quoted string }{
		{"text", "cluster <&> \"name\" \\ / ä 😀 \x00\x1f\x7f ", `cluster <&> \"name\" \\ \/ ä 😀 \u0000\u001F` + "\x7f "},
		{"line separators", "\u2028\u2029", "\u2028\u2029"}, // an encoder may write them twice as long
	} {
		n := 880_000 / len(tt.quoted)
		value := strings.Repeat(tt.piece, n)
		set := patientCall(w, "settings/set-cluster-id", `{"value":"`+strings.Repeat(tt.quoted, n)+`"}`)
		require.Equal(t, `{"ok":true}`, string(set.Result), "%s: %.200s", tt.name, set.Line)
		push := w.Await("the push of "+tt.name, answerWithin, func(f harness.Frame) bool {
			return f.Method == "connection/cluster-identity"
		})
		var pushed struct {
			ID string `json:"id"`
		}
		require.NoError(t, json.Unmarshal(push.Params, &pushed))
		require.True(t, value == pushed.ID, tt.name) // too long for a message
		got := patientCall(w, "settings/get-cluster-id", "")
		var result struct {
			Value string `json:"value"`
		}
		require.NoError(t, json.Unmarshal(got.Result, &result), "%s: %.200s", tt.name, got.Line)
		require.True(t, value == result.Value, tt.name)
	}
	uiBroker().endsWithItsInput(t, h, p)
}

// patientCall calls again what did not end within a relay's deadline of 5 s: half a second's work with the race
// detector, but not on a machine that is busy with much else.
func patientCall(w *harness.Wire, method, params string) harness.Frame {
	for i := 1; ; i++ {
		f := w.Call(strconv.Itoa(i), method, params)
		if f.Error == nil || f.Error.Message != "settings call failed: no answer in time" || i == 5 {
			return f
		}
	}
}

func TestSubscriptionsAreIdempotentAndGiveOneBaseline(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	p, w := startBrokerAlone(t, h, "nvpair-node-scanner") // nobody registers a service, so the directory stands still
	harness.Eventually(t, answerWithin, "the node itself is in the directory", func() bool {
		return strings.Contains(string(w.Call("0", "discovery:get-nodes", "").Result), `"id":"alpha"`)
	})
	ack := func(method, params, want string) {
		t.Helper()
		w.Send(harness.RequestLine("1", method, params))
		require.Equal(t, `{"jsonrpc":"2.0","id":1,"result":{"subscribed":`+want+`}}`, w.Next().Line, method)
	}
	for range 2 {
		ack("discovery:subscribe", "", "true")
		baseline := w.Next()
		require.Equal(t, "discovery:nodes-changed", baseline.Method, baseline.Line)
		var nodes []map[string]any
		require.NoError(t, json.Unmarshal(baseline.Params, &nodes), "not a bare array: %s", baseline.Line)
		require.Len(t, nodes, 1)
		require.Equal(t, "alpha", nodes[0]["id"])
		for range 3 {
			ack("discovery:subscribe", `{"x":1}`, "true")
			uiBroker().works(t, w, "2") // and no second baseline
		}
		for range 2 {
			ack("discovery:unsubscribe", "[]", "false")
		}
	}
	for _, namespace := range []string{"engine", "workloads", "ollama-proxy", "lmstudio-proxy"} {
		for _, params := range []string{"", "null", "5"} {
			ack(namespace+":subscribe", params, "true")
			uiBroker().works(t, w, "3") // without a baseline
		}
		for range 2 {
			ack(namespace+":unsubscribe", `"x"`, "false")
		}
	}
	uiBroker().endsWithItsInput(t, h, p)
}

func TestReportedErrorsReachTheClientAndGo(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	p, w := uiBroker().start(t, h)
	nodeID := nodeIDOf(t, h)
	before := time.Now().UnixMilli()
	next := func() (list []map[string]any) {
		t.Helper()
		f := w.Await("errors:update", answerWithin, func(f harness.Frame) bool { return f.Method == "errors:update" })
		require.NoError(t, json.Unmarshal(f.Params, &list), f.Line)
		return list
	}
	w.Send(harness.RequestLine("1", "errors:report", `{"id":"b","message":"<m>","severity":"odd","x":1}`))
	require.Equal(t, `{"jsonrpc":"2.0","id":1,"result":null}`, w.Next().Line)
	list := next()
	require.Len(t, list, 1)
	require.GreaterOrEqual(t, list[0]["timestamp"], float64(before))
	delete(list[0], "timestamp")
	require.Equal(t, map[string]any{"id": "b", "message": "<m>", "severity": "odd", "nodeId": nodeID}, list[0])

	w.Send(harness.RequestLine("", "errors:report", `{"id":"a","message":"m","nodeId":"another","timestamp":5}`))
	list = next()
	require.Len(t, list, 2)
	require.Equal(t, map[string]any{"id": "a", "message": "m", "nodeId": "another", "timestamp": 5.0}, list[0])
	require.Len(t, decoded[[]any](t, w.Call("2", "errors:get-initial", "").Result), 2)

	require.Equal(t, "null", string(w.Call("3", "errors:clear", `{"id":"b","clearedBy":"another"}`).Result))
	list = next()
	require.Len(t, list, 1)
	require.Equal(t, "null", string(w.Call("4", "errors:clear", `{"id":"a"}`).Result)) // not ours: no effect, no event
	require.Equal(t, "null", string(w.Call("5", "errors:clear", `{"id":"absent"}`).Result))
	require.Equal(t, "null", string(w.Call("6", "errors:report", `{"id":"without message"}`).Result)) // the store drops it
	require.Equal(t, "null", string(w.Call("7", "errors:report", `{"id":"c","message":"m"}`).Result))
	require.Len(t, next(), 2, "the very next event is that of c")
	require.Equal(t, 4, count(w, "errors:update"))
	uiBroker().endsWithItsInput(t, h, p)
}

// decoded decodes JSON.
func decoded[T any](t *testing.T, raw json.RawMessage) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal(raw, &v), "%.300s", raw)
	return v
}

// nodeIDOf returns the identity that lies in the host's data directory.
func nodeIDOf(t *testing.T, h *harness.Host) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(h.DataDir, "node-id.json"))
	require.NoError(t, err)
	return fmt.Sprint(decoded[map[string]any](t, text)["node_uuid"])
}
