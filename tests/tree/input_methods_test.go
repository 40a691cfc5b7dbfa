// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/tests/harness"
)

// methodCase is one request to the broker and how it must be answered.
type methodCase struct {
	method, params string
	code           int
	message        string // of the error; "..." at its end stands for any rest
	result         string // "" with code 0: any
}

// badParams are those that no method can use.
func badParams() []string { return []string{"", "null", "5", `"x"`, "[]", "true", "[{}]"} }

// methodCases returns what holds when of all workers only those of startThree are there.
func methodCases() []methodCase {
	var list []methodCase
	add := func(c methodCase, methods ...string) {
		for _, c.method = range methods {
			list = append(list, c)
		}
	}
	for _, params := range append(badParams(), "{}") {
		add(methodCase{params: params}, "ping", "version", "broker:status", "discovery:get-nodes")
		add(methodCase{params: params, result: "[]"}, "errors:get-initial")
		add(methodCase{params: params, result: `{"workloads":[]}`}, "workloads:get-initial")
		add(methodCase{params: params, result: `{"ready":false,"port":0}`},
			"ollama-proxy:get-status", "lmstudio-proxy:get-status")
		add(methodCase{params: params, result: `{"value":true}`}, "settings/get-force-ports")
		add(methodCase{params: params, result: `{"value":false}`}, "settings/get-cluster-auto-sync")
		add(methodCase{params: params, result: `{"value":""}`}, "settings/get-cluster-id", "settings/get-cluster-friendly-name")
		add(methodCase{params: params, code: -32602, message: "invalid params: ..."},
			"errors:report", "errors:clear", "settings/set-force-ports", "settings/set-cluster-auto-sync", "settings/set-cluster-id",
			"settings/set-cluster-friendly-name")
		add(methodCase{params: params, code: -32602, message: "..."}, "ollama-proxy:set-port", "lmstudio-proxy:set-port")
		add(methodCase{params: params, code: -32000, message: "engine-manager not available"},
			"engine:status", "engine:get-installed", "engine:start", "engine:no-such", "engine:")
		add(methodCase{params: params, code: -32000, message: "nvpair-cluster-manager not available"},
			"cluster:get-node-id", "cluster:no-such", "nodes:list", "nodes:")
		add(methodCase{params: params, code: -32000, message: "manual-nodes not available"}, "node/add", "node/remove", "nodes/list")
		add(methodCase{params: params, code: -32000, message: "ollama-proxy not available"},
			"ollama-proxy:node/list", "ollama-proxy:errors:report", "ollama-proxy:")
		add(methodCase{params: params, code: -32000, message: "lmstudio-proxy not available"}, "lmstudio-proxy:no-such")
		for _, method := range refusedMethods() {
			add(methodCase{params: params, code: -32601, message: "method not found: " + method}, method)
		}
	}
	for _, params := range []string{`{"port":0}`, `{"port":65536}`, `{"port":-1}`, `{"port":"80"}`, `{"port":8.5}`} {
		add(methodCase{params: params, code: -32602, message: "..."}, "ollama-proxy:set-port")
	}
	add(methodCase{params: `{"port":65535}`, code: -32000, message: "ollama-proxy not available"}, "ollama-proxy:set-port")
	add(methodCase{params: `{"engine":"ollama","port":11500}`, code: -32000, message: "engine-manager not available"},
		"engine:set-port")
	add(methodCase{params: `{"engine":"ollama"}`, code: -32000, message: "engine-manager not available"},
		"engine:get-settings")
	for _, params := range []string{`{"id":""}`, `{"id":5}`, `{"message":"m"}`, `{"id":null,"message":"m"}`} {
		add(methodCase{params: params, code: -32602, message: "invalid params: ..."}, "errors:report", "errors:clear")
	}
	add(methodCase{params: `{"id":"a","message":"m","timestamp":"now"}`, code: -32602, message: "invalid params: ..."},
		"errors:report")
	add(methodCase{params: `{"id":"absent"}`, result: "null"}, "errors:clear")
	for method, values := range map[string][]string{
		"settings/set-force-ports": {`"on"`, "1", "null", "[]"}, "settings/set-cluster-id": {"123", "true", "null", "{}"},
	} {
		for _, value := range values {
			add(methodCase{params: `{"value":` + value + `}`, code: -32602, message: "invalid params: ..."}, method)
		}
	}
	return list
}

// refusedMethods are answered -32601, whatever runs.
func refusedMethods() []string {
	return []string{
		"ollama-proxy:shutdown", "lmstudio-proxy:shutdown", "ollama-proxy:node/set-priority",
		"lmstudio-proxy:node/set-priority", "engine:configure-launch", "engine:set-reserved-port",
		"internal:set-reserved-port",
		// Those of workers are not those of the client.
		"discovery:register", "discovery:nodes", "discovery:nodes-changed", "discovery:reload-identity", "worker/ping",
		"worker/hello", "workloads:upsert", "schedule:priority", "node/set-priority", "node/activity", "app:ready", "ready",
		// The hub's are not the broker's.
		"hub/status", "hub/stop",
		// Nearly right.
		"Ping", "ping ", " ping", "pin", "ping/", "settings", "settings:get-force-ports", "ollama-proxy", "vllm-proxy:get-status",
		"engines:status", "cluster", "clusters:x", "node/update", "nodes/", "errors:", "errors:unsubscribe", "workloads:",
		// Of node-settings, known to it but no requests, or withdrawn (node-settings section 3).
		"settings/get-auto-join-invites", "settings/set-auto-join-invites", "settings/get-cluster-secret",
		"settings/set-cluster-secret", "settings/", "settings/no-such", "connection/cluster-identity",
		"connection/cluster-auto-sync", "connection/set-cluster-id",
	}
}

func (c methodCase) check(t *testing.T, f harness.Frame) {
	t.Helper()
	about := c.method + " " + c.params + ": " + f.Line
	if c.code == 0 {
		require.Nil(t, f.Error, about)
		if c.result != "" {
			require.Equal(t, c.result, string(f.Result), about)
		}
		return
	}
	require.NotNil(t, f.Error, about)
	require.Equal(t, c.code, f.Error.Code, about)
	if prefix, open := cutDots(c.message); open {
		require.Greater(t, len(f.Error.Message), len(prefix), about)
		require.Equal(t, prefix, f.Error.Message[:len(prefix)], about)
		return
	}
	require.Equal(t, c.message, f.Error.Message, about)
}

func cutDots(message string) (prefix string, open bool) {
	if n := len(message) - 3; n >= 0 && message[n:] == "..." {
		return message[:n], true
	}
	return message, false
}

// startThree starts a broker with the three workers that every node needs.
func startThree(t *testing.T, h *harness.Host) (*harness.Proc, *harness.Wire) {
	t.Helper()
	return startBrokerAlone(t, h, "nvpair-node-scanner", "nvpair-errors", "nvpair-node-settings")
}

func TestEveryMethodAnswersWrongParamsAsAgreed(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	p, w := startThree(t, h)
	for i, c := range methodCases() {
		c.check(t, w.Call(strconv.Itoa(i), c.method, c.params))
	}
	require.Len(t, w.Frames(), 1+len(methodCases()), "no request had an event")
	require.Equal(t, "[]", string(w.Call(`"errors"`, "errors:get-initial", "").Result))
	uiBroker().endsWithItsInput(t, h, p)
}

func TestNotificationsOfTheClientHaveNoEffect(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	p, w := startThree(t, h)
	report := w.Call("1", "errors:report", `{"id":"standing","message":"m"}`)
	require.Equal(t, "null", string(report.Result))
	w.Await("errors:update", answerWithin, func(f harness.Frame) bool { return f.Method == "errors:update" })

	seen := len(w.Frames())
	for _, c := range methodCases() {
		if c.method != "errors:report" {
			w.Send(harness.RequestLine("", c.method, c.params))
		}
	}
	w.Send(harness.RequestLine("", "errors:clear", `{"id":"standing"}`), harness.RequestLine("", "shutdown", ""),
		harness.RequestLine("", "discovery:subscribe", ""), harness.RequestLine("", "engine:subscribe", ""),
		harness.RequestLine("", "settings/set-cluster-id", `{"value":"x"}`),
		harness.RequestLine("", "settings/set-force-ports", `{"value":false}`),
		harness.RequestLine("", "errors:report", `{"id":""}`), harness.RequestLine("", "errors:report", "5"))
	require.Equal(t, `{"value":""}`, string(w.Call("2", "settings/get-cluster-id", "").Result))
	require.Equal(t, `{"value":true}`, string(w.Call("3", "settings/get-force-ports", "").Result))
	require.Len(t, decoded[[]any](t, w.Call("4", "errors:get-initial", "").Result), 1)
	require.Len(t, w.Frames(), seen+3, "something was sent that nobody asked for")

	w.Send(harness.RequestLine("5", "discovery:subscribe", ""))
	require.Equal(t, `{"subscribed":true}`, string(w.Answer("5").Result))
	w.Await("the baseline, for it was off", answerWithin, func(f harness.Frame) bool {
		return f.Method == "discovery:nodes-changed"
	})
	uiBroker().endsWithItsInput(t, h, p)
}

func TestABrokerWithoutOptionalWorkersSaysSo(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	p, w := startBrokerAlone(t, h, "nvpair-node-scanner")
	for i, c := range []methodCase{
		{method: "settings/get-force-ports", code: -32000, message: "node-settings not available"},
		{method: "settings/set-force-ports", params: "5", code: -32000, message: "node-settings not available"},
		{method: "settings/no-such", code: -32000, message: "node-settings not available"},
		{method: "errors:get-initial", result: "[]"},
		{method: "errors:report", params: `{"id":"a","message":"m"}`, result: "null"},
		{method: "errors:report", params: `{}`, code: -32602, message: "invalid params: ..."},
		{method: "errors:clear", params: `{"id":"a"}`, result: "null"},
		{method: "errors:get-initial", result: "[]"},
		{method: "log/set-level", params: `{"level":"debug"}`, result: `{"level":"debug"}`},
		{method: "ping"},
	} {
		w.Send(harness.RequestLine(strconv.Itoa(i), c.method, c.params))
		c.check(t, w.Next())
	}
	uiBroker().endsWithItsInput(t, h, p)
}

func TestTheLogLevelReachesEveryWorker(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	p, w := uiBroker().start(t, h)
	require.Equal(t, `{"level":"debug"}`, string(w.Call("1", "log/set-level", `{"level":"DEBUG"}`).Result))
	for _, b := range programs() {
		p.AwaitStderr(`\[`+b.binary+`\] INFO log level changed level=debug\n`, answerWithin)
	}
	uiBroker().endsWithItsInput(t, h, p)
}
