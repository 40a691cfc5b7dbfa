// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/jsonrpc"
)

// TestRelaysChangeNothing: see BR-21 and DEC-6.
func TestRelaysChangeNothing(t *testing.T) {
	for _, tt := range []struct {
		name, params string
		answer       string // the worker's, without its envelope
	}{
		{"result", `{"value": 1.0,"x":"\u00e9\/"}`, `"result":{"value": 1.0,"unknown":[]}`},
		{"null", "", `"result":null`},
		{"error", `[]`, `"error":{"code":-32602,"message":"bad <value>","data":{"field": "value"}}`},
		{"error of another shape", `null`, `"error":{"code":1}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := plant(t)
				settings := tr.join(workerSettings, 1)
				tr.client.Send(request(41, "settings/no-such", tt.params)) // the worker answers for itself (BR-24)
				settings.Expect(request(1, "settings/no-such", tt.params))
				settings.Send(`{"jsonrpc":"2.0","id":1,` + tt.answer + `}`)
				tr.client.Expect(`{"jsonrpc":"2.0","id":41,` + tt.answer + `}`)
			})
		})
	}
}

// TestRequestsKeepTheirOrderAndAnswersDoNot: see DEC-4.
func TestRequestsKeepTheirOrderAndAnswersDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		settings, store := tr.join(workerSettings, 1), tr.join(workerErrors, 1)
		const calls = 50
		for i := 1; i <= calls; i++ {
			tr.client.Send(request(100+i, "settings/echo", fmt.Sprint(i)))
		}
		tr.client.Send(request(99, "errors:get-initial", ""))
		require.Equal(t, `{"result":{"version":"1.2.3"}}`, tr.client.Call("version", ""), "nothing waits for a worker")
		store.Expect(request(1, "errors:get-initial", ""))
		store.Send(result(1, `[{"id":"a"}]`))
		tr.client.Expect(result(99, `[{"id":"a"}]`))
		for i := 1; i <= calls; i++ {
			settings.Expect(request(i, "settings/echo", fmt.Sprint(i)))
		}
		for i := calls; i >= 1; i-- {
			settings.Send(result(i, fmt.Sprint(i)))
			tr.client.Expect(result(100+i, fmt.Sprint(i)))
		}
	})
}

func TestARelayEndsWithItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		settings, store := tr.join(workerSettings, 1), tr.join(workerErrors, 1)
		begin := time.Now()
		tr.client.Send(request(1, "settings/get-cluster-id", ""))
		settings.Expect(request(1, "settings/get-cluster-id", ""))
		tr.client.Expect(failure(1, `{"code":-32000,"message":"settings call failed: no answer in time"}`))
		require.Equal(t, 5*time.Second, time.Since(begin))
		settings.Send(result(1, `"late"`))
		tr.client.Idle()

		begin = time.Now()
		tr.client.Send(request(2, "errors:get-initial", ""))
		store.Expect(request(1, "errors:get-initial", ""))
		tr.client.Expect(failure(2, `{"code":-32000,"message":"errors:get-initial failed: no answer in time"}`))
		require.Equal(t, 5*time.Second, time.Since(begin))
	})
}

// TestARelayEndsWithItsWorker: see BR-11 and BR-22.
func TestARelayEndsWithItsWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		settings := tr.join(workerSettings, 1)
		tr.client.Send(request(1, "settings/get-cluster-id", ""))
		settings.Expect(request(1, "settings/get-cluster-id", ""))
		settings.leave()
		tr.client.Expect(failure(1, `{"code":-32000,"message":"settings call failed: jsonrpc peer closed"}`))
		require.Equal(t, failed("settings call failed: jsonrpc peer closed"), tr.client.Call("settings/get-cluster-id", ""),
			"between the end of the link and its report")
		tr.workerEnded(settings.link.worker, "exit status 1")
		require.Equal(t, failed("node-settings not available"), tr.client.Call("settings/get-cluster-id", ""))

		again := tr.join(workerSettings, 2)
		tr.client.Send(request(2, "settings/get-cluster-id", ""))
		again.Expect(request(1, "settings/get-cluster-id", ""))
		again.Send(result(1, `{"value":"c"}`))
		tr.client.Expect(result(2, `{"value":"c"}`))
	})
}

func TestDeadlinesAreThoseOfTheContract(t *testing.T) {
	want := map[string]time.Duration{
		workerProxy: 5 * time.Second, workerSettings: 5 * time.Second, workerCluster: 30 * time.Second,
		workerEngines: 0, workerManual: 0,
	}
	for _, d := range catalog() {
		if deadline, relayed := want[d.name]; relayed {
			require.Equal(t, deadline, d.deadline, d.name)
			require.NotEmpty(t, d.callPrefix, d.name)
		}
	}
}

func TestAWorkerThatTakesNothingHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		tr.join(workerSettings, 1) // reads nothing
		for i := range jsonrpc.DefaultMaxCalls {
			tr.client.Send(request(i, "settings/get-force-ports", ""))
		}
		require.Equal(t, failed("settings call failed: too many calls are waiting"),
			tr.client.Call("settings/get-force-ports", ""))
		require.Equal(t, `{"result":{"version":"1.2.3"}}`, tr.client.Call("version", ""))
		for i := range jsonrpc.DefaultMaxCalls {
			_ = i // in any order: each has its own timer
			require.Contains(t, tr.client.Next(), "no answer in time")
		}
	})
}

// TestAClientThatStopsReadingIsNotAskedForMore: what it has sent is bounded, and
// so is what waits for it (DEC-116).
func TestAClientThatStopsReadingIsNotAskedForMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		for i := range maxNodes {
			tr.nodes.upsert(node(fmt.Sprintf("u%03d", i), fmt.Sprintf("%0200d", i)), 1)
		}
		taken := 0
		for ; taken < 1000; taken++ { // each answer is about 300 KB
			require.NoError(t, tr.client.Conn.SetWriteDeadline(time.Now().Add(time.Second)))
			if _, err := fmt.Fprintln(tr.client.Conn, request(taken, "discovery:get-nodes", "")); err != nil {
				break
			}
		}
		require.Less(t, taken, 100)
	})
}
