// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

const oneNode = `[{"id":"n","name":"n","hostUuid":"u","ipAddress":"","port":0,"lastSeen":946684800,"trusted":false}]`

func TestTheBaselineComesBehindTheAckAndOnlyIfItWasOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		tr.nodes.upsert(node("u", "n"), 1)
		for range 2 {
			require.Equal(t, on, tr.client.Call("discovery:subscribe", ""))
			tr.client.Expect(notification("discovery:nodes-changed", oneNode))
			require.Equal(t, on, tr.client.Call("discovery:subscribe", ""))
			tr.client.Idle()
			require.Equal(t, off, tr.client.Call("discovery:unsubscribe", ""))
			require.Equal(t, off, tr.client.Call("discovery:unsubscribe", ""))
			tr.client.Idle()
		}
	})
}

func TestEmptyDirectoryIsABaselineToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := plant(t).client
		require.Equal(t, on, c.Call("discovery:subscribe", ""))
		c.Expect(notification("discovery:nodes-changed", "[]"))
	})
}

func TestWhoIsNotSubscribedHearsNothingOfNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		tr.nodes.upsert(node("u", "n"), 1)
		tr.client.Idle()
		tr.client.Call("discovery:subscribe", "")
		tr.client.Next()
		tr.client.Call("discovery:unsubscribe", "")
		tr.nodes.remove("u")
		tr.client.Idle()
	})
}

func TestEveryChangeIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		tr.client.Call("discovery:subscribe", "")
		tr.client.Expect(notification("discovery:nodes-changed", "[]"))
		for range 2 { // the second differs in lastSeen at most
			tr.nodes.upsert(node("u", "n"), 1)
			tr.client.Expect(notification("discovery:nodes-changed", oneNode))
		}
		tr.nodes.remove("u")
		tr.client.Expect(notification("discovery:nodes-changed", "[]"))
		tr.nodes.remove("u")
		tr.client.Idle()
	})
}

// TestChangesForASlowClientAreOneSnapshot: see DEC-116.
func TestChangesForASlowClientAreOneSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		tr.client.Call("discovery:subscribe", "")
		tr.client.Expect(notification("discovery:nodes-changed", "[]"))
		tr.nodes.upsert(node("u", "first"), 1)
		synctest.Wait() // it is being written
		for i := range 1000 {
			tr.nodes.upsert(node("u", fmt.Sprint(i)), 1)
		}
		require.Contains(t, tr.client.Next(), `"id":"first"`)
		require.Contains(t, tr.client.Next(), `"id":"999"`, "the newest wins")
		tr.client.Idle()
		require.Zero(t, tr.Broker.client.conn.Dropped())
	})
}

// TestWhatDoesNotFitIsDroppedAndCounted: events are, answers never (DEC-116).
func TestWhatDoesNotFitIsDroppedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		settings := tr.join(workerSettings, 1)
		push := notification("connection/cluster-identity", `{"id":"`+strings.Repeat("x", 900<<10)+`"}`)
		for range 12 {
			settings.Send(push)
		}
		tr.client.Send(request(1, "version", ""))
		synctest.Wait()
		dropped := tr.Broker.client.conn.Dropped()
		require.Positive(t, dropped)
		for range 12 - int(dropped) {
			tr.client.Expect(push)
		}
		tr.client.Expect(result(1, `{"version":"1.2.3"}`))
		require.Contains(t, tr.client.Call("broker:status", ""), fmt.Sprintf(`"droppedNotifications":%d}`, dropped))
	})
}

func TestPushesOfTheSettingsNeedNoSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		settings := tr.join(workerSettings, 1)
		for _, frame := range []string{
			notification("connection/cluster-identity", `{"id": "c", "later":1}`),
			notification("connection/cluster-auto-sync", `{"value":true}`),
		} {
			settings.Send(frame)
			tr.client.Expect(frame)
		}
		settings.Send(notification("ready", `{"version":"1"}`), notification("connection/other", "{}"),
			notification("engine:ready", "{}"), notification("discovery:node-removed", "{}"))
		tr.client.Idle()
	})
}

// TestAWorkerSubscribesToTheDirectory: see BR-43 and BR-44.
func TestAWorkerSubscribesToTheDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		tr.nodes.upsert(node("u", "n"), 1)
		store := tr.join(workerErrors, 1)
		tr.nodes.upsert(node("u", "n"), 1)
		store.Idle() // not subscribed yet

		const all = `{"nodes":[{"hostUuid":"u","name":"n","ip":"","trusted":false,"services":null,"lastSeen":0}]}`
		store.Send(notification("discovery:subscribe", ""))
		store.Expect(notification("discovery:nodes", all))
		store.Send(notification("discovery:subscribe", `{"services":["er"]}`)) // replaces the former
		store.Expect(notification("discovery:nodes", `{"nodes":[]}`))
		tr.nodes.upsert(node("u", "n"), 1) // a change that this worker does not see is one all the same
		store.Expect(notification("discovery:nodes", `{"nodes":[]}`))
		store.Send(notification("discovery:subscribe", `{"services":"er"}`))
		store.Idle()
		require.Contains(t, tr.log.String(), "undecodable notification dropped worker=errors method=discovery:subscribe")

		tr.crash(store)
		tr.nodes.upsert(node("u", "n"), 1)
		tr.join(workerErrors, 2).Send(notification("no/such", ""))
	})
}

func TestAStalledSubscriberGetsTheLatestState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		stalled, reading := tr.join(workerSettings, 1), tr.join(workerErrors, 1)
		for _, w := range []*incarnation{stalled, reading} {
			w.Send(notification("discovery:subscribe", ""))
		}
		reading.Expect(notification("discovery:nodes", `{"nodes":[]}`))
		synctest.Wait() // the other's first set is being written
		for i := range 100 {
			tr.nodes.upsert(node("u", fmt.Sprint(i)), 1)
			require.Contains(t, reading.Next(), fmt.Sprintf(`"name":"%d"`, i))
		}
		stalled.Expect(notification("discovery:nodes", `{"nodes":[]}`))
		require.Contains(t, stalled.Next(), `"name":"99"`)
		stalled.Idle()
	})
}

func TestAWorkerAnnouncesItsVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		settings := tr.join(workerSettings, 1)
		settings.Send(notification("worker/hello", `{"liveness":0,"version":"foreign"}`), notification("worker/hello", "5"))
		synctest.Wait()
		require.Empty(t, tr.byName[workerSettings].status().Version)
		settings.Send(notification("worker/hello", `{"liveness":1,"version":"4.5.6"}`), notification("worker/pong", `{"seq":1}`))
		synctest.Wait()
		require.Equal(t, "4.5.6", tr.byName[workerSettings].status().Version)

		settings.link.Ping(17)
		settings.Expect(notification("worker/ping", `{"seq":17}`))
		settings.link.CloseWrite()
		<-settings.ended
	})
}

// TestTheStartOfAWorkerIsALineThatToolsRead: see BR-8.
func TestTheStartOfAWorkerIsALineThatToolsRead(t *testing.T) {
	labels := []string{
		"scanner", "nvpair-errors", "settings", "engine-manager", "node-info", "proxy", "workload-manager", "manual-nodes",
		"cluster-manager", "scheduler",
	}
	for i, d := range catalog() {
		require.Equal(t, labels[i], d.label)
	}
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		tr.join(workerScanner, 1)
		require.Contains(t, tr.log.String(),
			" [nvpair-ui-broker] INFO scanner started path=./nvpair-node-scanner pid=4711\n")
	})
}
