// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// answer is a request without a worker to ask, and what the client gets.
type answer struct{ method, params, want string }

func notFound(method string) string {
	return `{"error":{"code":-32601,"message":"method not found: ` + method + `"}}`
}

func failed(message string) string { return `{"error":{"code":-32000,"message":"` + message + `"}}` }

func invalid(message string) string {
	return `{"error":{"code":-32602,"message":"invalid params: ` + message + `"}}`
}

const (
	on  = `{"result":{"subscribed":true}}`
	off = `{"result":{"subscribed":false}}`
)

// TestEveryMethodHasItsAnswerWithoutWorkers holds all names of BR sections 4 and 5.
func TestEveryMethodHasItsAnswerWithoutWorkers(t *testing.T) {
	table := []answer{
		{"ping", "", `{"result":{"pong":true,"version":"1.2.3","uptime_ms":0}}`},
		{"version", "", `{"result":{"version":"1.2.3"}}`},
		{"log/set-level", `{"level":"WARNING"}`, `{"result":{"level":"warn"}}`},
		{"log/set-level", `{"level":"loud"}`, invalid(`log level \"loud\" is not one of debug, info, warn, error`)},
		{"discovery:get-nodes", "", `{"result":{"nodes":[]}}`},
		{"discovery:unsubscribe", "", off},
		{"engine:subscribe", "", on},
		{"engine:subscribe", "null", on},
		{"engine:unsubscribe", "", off},
		{"workloads:subscribe", `{"any":"thing"}`, on},
		{"workloads:unsubscribe", "", off},
		{"workloads:get-initial", "", `{"result":{"workloads":[]}}`},
		{"errors:get-initial", "", `{"result":[]}`},
		{"errors:report", `{"id":"a","message":"m"}`, `{"result":null}`},
		{"errors:report", `{"id":"a"}`, `{"result":null}`}, // the store drops it (EB-3)
		{"errors:report", `{"message":"m"}`, invalid(`\"id\" is required`)},
		{"errors:report", "", invalid(`\"id\" is required`)},
		{"errors:report", "null", invalid(`\"id\" is required`)},
		{"errors:clear", `{"id":"a"}`, `{"result":null}`},
		{"errors:clear", `{"id":""}`, invalid(`\"id\" is required`)},
		{"errors:clear", "", invalid(`\"id\" is required`)},

		{"settings/get-force-ports", "", failed("node-settings not available")},
		{"settings/no-such-thing", "", failed("node-settings not available")},
		{"engine:get-installed", "", failed("engine-manager not available")},
		{"engine:set-port", `{"engine":"ollama","port":1}`, failed("engine-manager not available")},
		{"engine:set-port", `{"engine":"ollama","port":70000}`, invalid("port must be 1..65535")},
		{"engine:get-settings", "", failed("engine-manager not available")},
		{"engine:preview-settings", "", failed("engine-manager not available")},
		{"engine:apply-settings", "", failed("engine-manager not available")},
		{"cluster:get-node-id", "", failed("nvpair-cluster-manager not available")},
		{"nodes:any", "", failed("nvpair-cluster-manager not available")},
		{"node/add", "", failed("manual-nodes not available")},
		{"node/remove", "", failed("manual-nodes not available")},
		{"nodes/list", "", failed("manual-nodes not available")},

		{"engine:configure-launch", "", notFound("engine:configure-launch")},
		{"engine:set-reserved-port", "", notFound("engine:set-reserved-port")},
		{"internal:set-reserved-port", "", notFound("internal:set-reserved-port")},
		{"node/move", "", notFound("node/move")},
		{"nodes/remove", "", notFound("nodes/remove")},
		{"settings", "", notFound("settings")},
		{"discovery:nodes", "", notFound("discovery:nodes")},
		{"errors:update", "", notFound("errors:update")},
		{"workloads:upsert", "", notFound("workloads:upsert")},
		{"vllm-proxy:get-status", "", notFound("vllm-proxy:get-status")},
		{"ollama:get-status", "", notFound("ollama:get-status")},
		{"ready", "", notFound("ready")},
		{"Ping", "", notFound("Ping")},
	}
	for _, proxy := range []string{"ollama-proxy", "lmstudio-proxy"} {
		down := failed(proxy + " not available")
		table = append(table, []answer{
			{proxy + ":get-status", "", `{"result":{"ready":false,"port":0}}`},
			{proxy + ":subscribe", "", on},
			{proxy + ":subscribe", "", on},
			{proxy + ":unsubscribe", "", off},
			{proxy + ":shutdown", "", notFound(proxy + ":shutdown")},
			{proxy + ":node/set-priority", "", notFound(proxy + ":node/set-priority")},
			{proxy + ":set-port", `{"port":12345}`, down},
			{proxy + ":set-port", `{"port":65535}`, down},
			{proxy + ":set-port", `{"port":65536}`, invalid("port must be 1..65535")},
			{proxy + ":set-port", `{"port":0}`, invalid("port must be 1..65535")},
			{proxy + ":set-port", `{"port":"1"}`, invalid("port must be 1..65535")},
			{proxy + ":set-port", "", invalid("port must be 1..65535")},
			{proxy + ":node/select", "", down},
			{proxy + ":no-such-thing", "", down},
			{proxy + ":", "", down},
		}...)
	}
	synctest.Test(t, func(t *testing.T) {
		c := plant(t).client
		for _, tt := range table {
			if got := c.Call(tt.method, tt.params); got != tt.want {
				t.Errorf("%s %s\n got %s\nwant %s", tt.method, tt.params, got, tt.want)
			}
		}
		c.Idle() // no subscription in the table has a baseline
	})
}

func TestUndecodableReportsAreInvalid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := plant(t).client
		for _, method := range []string{"errors:report", "errors:clear"} {
			for _, params := range []string{`[]`, `"a"`, `{"id":5}`} {
				require.Contains(t, c.Call(method, params), `"code":-32602,"message":"invalid params: json: cannot unmarshal`,
					"%s %s", method, params)
			}
		}
	})
}

func TestIDsComeBackAsTheyWere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := plant(t).client
		for _, id := range []string{`1.50`, `"a\u0062"`, `9007199254740993`, `[{"x": 1}]`} {
			c.Send(`{"jsonrpc":"2.0","id":` + id + `,"method":"version"}`)
			c.Expect(`{"jsonrpc":"2.0","id":` + id + `,"result":{"version":"1.2.3"}}`)
		}
	})
}

func TestOnlyTwoNotificationsOfTheClientHaveAnEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		store := tr.join(workerErrors, 1)
		c := tr.client
		c.Send(
			notification("errors:clear", `{"id":"a"}`),
			notification("shutdown", ""),
			notification("ping", ""),
			notification("discovery:subscribe", ""),
			notification("settings/set-force-ports", `{"value":true}`),
			notification("no/such", ""),
			notification("errors:report", `{"message":"without an id"}`),
			notification("log/set-level", `{"level":5}`),
		)
		c.Idle()
		store.Idle()
		require.False(t, tr.Broker.client.discovery.Load())
		require.Contains(t, tr.log.String(), "error report of the client dropped")
		require.Contains(t, tr.log.String(), "log level not changed")

		c.Send(notification("errors:report", `{"id":"a","timestamp":5,"message":"m"}`))
		store.Expect(notification("errors:report", `{"id":"a","message":"m","timestamp":5,"nodeId":"`+nodeID+`"}`))
		c.Send(notification("log/set-level", `{"level":"error"}`))
		store.Expect(notification("log/set-level", `{"level":"error"}`))
		require.Equal(t, slog.LevelError, tr.cfg.Level.Level())
		c.Idle()
	})
}

func TestTheLevelGoesToEveryLiveWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		scanner, settings := tr.join(workerScanner, 1), tr.join(workerSettings, 1)
		require.Equal(t, `{"result":{"level":"debug"}}`, tr.client.Call("log/set-level", `{"level":" DEBUG"}`))
		for _, w := range []*incarnation{scanner, settings} {
			w.Expect(notification("log/set-level", `{"level":"debug"}`))
		}
		require.Contains(t, tr.client.Call("log/set-level", `{"level":"x"}`), "-32602")
		scanner.Idle()
		settings.Idle()
	})
}

func TestShutdownIsAnsweredBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := plant(t).client
		require.Equal(t, `{"result":null}`, c.Call("shutdown", ""))
		_, err := c.Conn.Read(make([]byte, 1))
		require.Error(t, err, "the broker must hang up")
	})
}

func TestReadyIsTheFirstFrameWhateverWorkersSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := sow(t)
		settings, store, scanner := tr.join(workerSettings, 1), tr.join(workerErrors, 1), tr.join(workerScanner, 1)
		settings.Send(notification("connection/cluster-auto-sync", `{"value":true}`))
		store.Send(notification("errors:update", `[{"id":"a"}]`))
		scanner.Send(notification("discovery:node-discovered", `{"node":{"hostUuid":"u","name":"n"}}`))
		synctest.Wait()
		tr.serve()
		tr.client.Expect(
			notification("app:ready", `{"version":"1.2.3"}`),
			notification("connection/cluster-auto-sync", `{"value":true}`),
			notification("errors:update", `[{"id":"a"}]`),
		)
		tr.client.Idle()
	})
}

func TestInvalidRequestsOfTheClientAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := plant(t).client
		c.Send(`{"jsonrpc":"1.0","id":3,"method":"ping"}`, `{"id":4,"result":1}`, `nonsense`)
		c.Expect(failure(3, `{"code":-32600,"message":"invalid request"}`))
		c.Idle()
	})
}
