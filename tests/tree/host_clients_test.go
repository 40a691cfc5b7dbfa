// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/tests/harness"
)

// workerPID returns the process of a worker as broker:status tells it, "" for the broker.
func workerPID(t *testing.T, w *harness.Wire, name string) int {
	t.Helper()
	status := decoded[struct {
		Pid     int
		Workers []struct {
			Name string
			Pid  int
		}
	}](t, w.Call(`"pid"`, "broker:status", "").Result)
	if name == "" {
		return status.Pid
	}
	for _, worker := range status.Workers {
		if worker.Name == name {
			require.NotZero(t, worker.Pid, name)
			return worker.Pid
		}
	}
	t.Fatalf("no worker %s in broker:status", name)
	return 0
}

func TestClientsOfAHubWithEqualIdsGetTheirOwnAnswers(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	p := serve(t, h)
	const clients, requests = 4, 250 // fewer together than may wait at one worker
	wires := make([]*harness.Wire, clients)
	for c := range wires {
		wires[c], _ = attach(t, h)
	}
	for i := range requests {
		for c, w := range wires {
			w.Send(harness.RequestLine(strconv.Itoa(i), fmt.Sprintf("no-such-%d-%d", c, i), ""),
				harness.RequestLine(fmt.Sprintf(`{"relayed":%d}`, i), fmt.Sprintf("settings/no-such-%d-%d", c, i), ""))
		}
	}
	for c, w := range wires {
		answers := map[string]int{}
		for range 2 * requests {
			f := w.Next()
			require.NotNil(t, f.Error, f.Line)
			require.Equal(t, -32601, f.Error.Code, f.Line)
			prefix := "no-such-" // of id 7: the method of request 7 of this client
			if strings.HasPrefix(string(f.ID), "{") {
				prefix = "settings/no-such-"
			}
			number := strings.NewReplacer(`{"relayed":`, "", "}", "").Replace(string(f.ID))
			require.Equal(t, fmt.Sprintf("method not found: %s%d-%s", prefix, c, number), f.Error.Message)
			answers[string(f.ID)]++
		}
		require.Len(t, answers, 2*requests, "an id was answered twice")
	}
	for _, id := range []string{"1.50", "-3", `"x"`, `{ "a" : 1 }`, "123456789012345678901234567890", "true"} {
		for _, method := range []string{"ping", "settings/get-cluster-id", "hub/status", "discovery:subscribe", "shutdown"} {
			require.Equal(t, id, string(wires[0].Call(id, method, "").ID))
		}
	}
	stopNode(t, h, p)
}

func TestSubscriptionsOfAHubAreEachClientsOwn(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	p := serve(t, h)
	nodesChanged := func(f harness.Frame) bool { return f.Method == "discovery:nodes-changed" }
	first, _ := attach(t, h)
	second, _ := attach(t, h)
	require.Equal(t, `{"subscribed":true}`, string(first.Call("1", "discovery:subscribe", "").Result))
	first.Await("the node itself, in the baseline or soon after", answerWithin, func(f harness.Frame) bool {
		return nodesChanged(f) && len(decoded[[]any](t, f.Params)) == 1
	})
	second.Send(harness.RequestLine("", "discovery:subscribe", "")) // no request, no effect

	third, _ := attach(t, h) // the hub has been subscribed all the time: the baseline is its copy
	require.Equal(t, `{"subscribed":true}`, string(third.Call("1", "discovery:subscribe", "").Result))
	third.Await("a baseline", answerWithin, nodesChanged)
	require.Equal(t, `{"subscribed":true}`, string(third.Call("2", "discovery:subscribe", "").Result))
	require.Equal(t, `{"subscribed":false}`, string(third.Call("3", "discovery:unsubscribe", "").Result))

	seen, unwanted := count(first, "discovery:nodes-changed"), count(third, "discovery:nodes-changed")
	require.NoError(t, syscall.Kill(workerPID(t, first, "scanner"), syscall.SIGKILL))
	harness.Eventually(t, answerWithin, "the new scanner's announcement", func() bool {
		return count(first, "discovery:nodes-changed") > seen
	})
	for _, w := range []*harness.Wire{first, second, third} { // what needs no subscription reaches all
		w.Await("the crash", answerWithin, func(f harness.Frame) bool {
			return f.Method == "errors:update" && strings.Contains(string(f.Params), "supervisor:subprocess-crashed:scanner")
		})
		require.NotNil(t, w.Call("4", "ping", "").Result)
	}
	require.Zero(t, count(second, "discovery:nodes-changed"))
	require.Equal(t, unwanted, count(third, "discovery:nodes-changed"))
	require.Equal(t, `{"subscribed":true}`, string(third.Call("5", "discovery:subscribe", "").Result))
	third.Await("a baseline again", answerWithin, nodesChanged)
	stopNode(t, h, p)
}

func TestAHubClientThatDoesNotReadIsDroppedAndNobodyElse(t *testing.T) {
	t.Parallel()
	for name, flood := range map[string]func(t *testing.T, w *harness.Wire){
		"events beyond its queue": func(t *testing.T, w *harness.Wire) { // at once
			value := `"` + strings.Repeat("v", 90_000) + `"`
			const pushes = 110
			for i := range pushes {
				f := w.Call(strconv.Itoa(i), "settings/set-cluster-id", `{"value":`+value+`}`)
				require.Equal(t, `{"ok":true}`, string(f.Result), "%.300s", f.Line)
			}
			harness.Eventually(t, answerWithin, "all pushes reach the one who reads", func() bool {
				return count(w, "connection/cluster-identity") == pushes
			})
		},
		"no byte in ten seconds": func(t *testing.T, w *harness.Wire) {
			const reports = 300 // a list that is longer than what a socket holds
			for i := range reports {
				w.Send(harness.RequestLine("", "errors:report", fmt.Sprintf(`{"id":"e%d","message":%q}`, i, strings.Repeat("m", 1000))))
			}
			w.Await("all errors in a list", answerWithin, func(f harness.Frame) bool {
				return f.Method == "errors:update" && strings.Count(string(f.Params), `"id":"e`) == reports
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := harness.NewHost(t, "alpha")
			p := serve(t, h)
			w, _ := attach(t, h)
			unread, err := net.Dial("unix", controlSocket(t, h))
			require.NoError(t, err)
			defer unread.Close()
			clients := func() int {
				return int(decoded[map[string]any](t, w.Call(`"clients"`, "hub/status", "").Result)["clients"].(float64))
			}
			harness.Eventually(t, answerWithin, "both are there", func() bool { return clients() == 2 })
			begin := time.Now()
			flood(t, w)
			harness.Eventually(t, 3*answerWithin, "the other client is dropped", func() bool { return clients() == 1 })
			require.Less(t, time.Since(begin), time.Minute)

			back, _ := attach(t, h) // it may come back for what is newest
			require.NotNil(t, back.Call("1", "errors:get-initial", "").Result)
			require.Equal(t, 2, clients())
			stopNode(t, h, p)
		})
	}
}

func TestAHubClientCannotEndTheNodeByAccident(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	p := serve(t, h)
	w, conn := attach(t, h)
	other, _ := attach(t, h)
	f := w.Call("1", "shutdown", "")
	require.Equal(t, &harness.ErrorObject{Code: -32601, Message: "method not found: shutdown"}, f.Error)
	w.Send(harness.RequestLine("", "shutdown", ""), harness.RequestLine("", "hub/stop", ""))
	for i, g := range garbages(1 << 20) {
		w.Send(g.text)
		if g.refused != "" {
			f := w.Next()
			require.Equal(t, g.refused, string(f.ID), g.name)
			require.Equal(t, -32600, f.Error.Code, g.name)
		}
		w.Send(harness.RequestLine(strconv.Itoa(1000+i), "ping", ""))
		f := w.Next()
		require.Equal(t, strconv.Itoa(1000+i), string(f.ID), "after %s: %.200s", g.name, f.Line)
	}
	w.Write(`{"jsonrpc":"2.0","id":5,"method":"pi`)
	require.NoError(t, conn.Close()) // in the middle of a frame
	harness.Eventually(t, answerWithin, "it is forgotten", func() bool {
		return decoded[map[string]any](t, other.Call("1", "hub/status", "").Result)["clients"] == 1.0
	})

	other.Send(harness.RequestLine("2", "hub/stop", ""))
	require.Equal(t, "null", string(other.Answer("2").Result))
	other.AwaitEnd(endWithin)
	require.Equal(t, 0, p.AwaitExit(endWithin))
	h.AwaitNone(goneWithin)
}

func TestAHubRefusesClientsBeyondItsBound(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	p := serve(t, h)
	first, conn := attach(t, h)
	for range 63 {
		attach(t, h)
	}
	beyond, err := net.Dial("unix", controlSocket(t, h))
	require.NoError(t, err)
	defer beyond.Close()
	require.NoError(t, beyond.SetDeadline(time.Now().Add(answerWithin)))
	n, err := beyond.Read(make([]byte, 1))
	require.Error(t, err)
	require.Zero(t, n)
	require.NotNil(t, first.Call("1", "ping", "").Result)
	require.NoError(t, conn.Close())
	harness.Eventually(t, answerWithin, "there is a place again", func() bool {
		code, _, _ := nvpair(t, h, "", "call", "ping")
		return code == 0
	})
	stopNode(t, h, p)
}
