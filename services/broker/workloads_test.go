// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/worker/workertest"
)

const otherNode = "99999999-2222-3333-4444-555555555555"

// jobOf returns a workloadInfo in the order of members that a proxy writes. more
// is appended, with a comma in front.
func jobOf(node, id, state, more string) string {
	return fmt.Sprintf(`{"id":%q,"model":"m","engine":"ollama","runId":"r1","state":%q,"originatedFrom":%q,"createdAt":1000%s}`,
		id, state, node, more)
}

// event wraps a workloadInfo.
func event(method, info string) string { return notification(method, `{"workloadInfo":`+info+`}`) }

func upsert(info string) string { return event("workloads:upsert", info) }

// stamped is jobOf as it looks once this node is named as its origin.
func stamped(id, state, more string) string {
	return fmt.Sprintf(`{"id":%q,"model":"m","engine":"ollama","runId":"r1","state":%q,"createdAt":1000%s,"originatedFrom":%q}`,
		id, state, more, nodeID)
}

// cast is a tree with a subscribed client and the workers that jobs concern.
type cast struct {
	*tree
	scheduler, manager, proxy *incarnation
}

func stage(t *testing.T) *cast {
	t.Helper()
	c := &cast{tree: plant(t)}
	require.Equal(t, `{"result":{"subscribed":true}}`, c.client.Call("workloads:subscribe", ""))
	c.scheduler = c.join(workerScheduler, 1)
	c.scheduler.Expect(notification("discovery:nodes-changed", `[]`))
	c.manager = c.join(workerWorkloads, 1)
	c.proxy = c.joinProxy(1)
	synctest.Wait()
	return c
}

// joinProxy attaches a proxy and lets go what it is asked.
func (tr *tree) joinProxy(generation int) *incarnation {
	in := tr.join(workerProxy, generation)
	go func() { // ends with the streams
		for {
			if _, err := in.Lines.ReadString('\n'); err != nil {
				return
			}
		}
	}()
	return in
}

// tell requires that all three are told the same job, and the manager by method.
func (c *cast) tell(method, info string) {
	c.t.Helper()
	c.scheduler.Expect(upsert(info))
	c.client.Expect(upsert(info))
	c.manager.Expect(event(method, info))
}

func (c *cast) allQuiet() {
	c.t.Helper()
	for _, p := range []*workertest.Peer{c.scheduler.Peer, c.client, c.manager.Peer} {
		p.Idle()
	}
}

func TestAProxysJobIsStampedAndToldToAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stage(t)
		c.proxy.Send(event("workload:submitted", jobOf("", "1", "queued", `,"seq":1,"later":{"x":1}`)))
		c.tell("workload:submitted", stamped("1", "queued", `,"seq":1,"later":{"x":1}`))
		c.proxy.Send(event("workload:started", jobOf("", "1", "running", `,"seq":2`)))
		c.tell("workload:started", stamped("1", "running", `,"seq":2`))
		c.proxy.Send(event("workload:submitted", jobOf(otherNode, "1", "queued", ``))) // a set origin stays
		c.tell("workload:submitted", jobOf(otherNode, "1", "queued", ``))
		c.proxy.Send(event("workload:completed", jobOf("", "1", "completed", `,"seq":3`)))
		c.tell("workload:completed", stamped("1", "completed", `,"seq":3`))

		// What the index rejects, the peers judge for themselves.
		c.proxy.Send(event("workload:started", jobOf("", "1", "running", `,"seq":9`)))
		c.manager.Expect(event("workload:started", stamped("1", "running", `,"seq":9`)))
		c.allQuiet()
	})
}

func TestUndecodableJobsReachNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stage(t)
		for _, params := range []string{`{}`, `null`, `{"workloadInfo":{"id":7}}`, `{"workloadInfo":{"model":"m"}}`, `{"workloadInfo":null}`} {
			c.proxy.Send(notification("workload:started", params))
			c.manager.Send(notification("workloads:upsert", params))
		}
		c.proxy.Send(notification("workloads:remove", `{}`), notification("workload:started", ""))
		c.manager.Send(notification("workloads:remove", `{"workloadId":1}`))
		c.manager.Send(event("workload:started", jobOf(otherNode, "1", "running", ""))) // not its method
		c.allQuiet()
		require.Equal(t, 13, strings.Count(c.log.String(), "undecodable notification dropped"), c.log)
	})
}

func TestWhatPeersAndIngressReportDoesNotGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stage(t)
		for _, info := range []string{jobOf(otherNode, "1", "running", ""), jobOf(nodeID, "made here", "queued", "")} {
			c.manager.Send(notification("workloads:upsert", `{"workloadInfo":`+info+`,"more":1}`))
			c.scheduler.Expect(upsert(info))
			c.client.Expect(upsert(info))
		}
		c.manager.Send(notification("workloads:remove", `{"workloadId":"1","originatedFrom":"`+otherNode+`"}`))
		removal := notification("workloads:remove", `{"workloadId":"1","originatedFrom":"`+otherNode+`"}`)
		c.scheduler.Expect(removal)
		c.client.Expect(removal)
		c.allQuiet()
		require.Equal(t, `{"result":{"workloads":[`+jobOf(nodeID, "made here", "queued", "")+`]}}`, c.client.Call("workloads:get-initial", ""))
	})
}

func TestARemovalIsAlwaysPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stage(t)
		c.proxy.Send(notification("workloads:remove", `{"workloadId":"unknown","note":1}`))
		removal := notification("workloads:remove", `{"workloadId":"unknown","originatedFrom":"`+nodeID+`"}`)
		c.scheduler.Expect(removal)
		c.client.Expect(removal)
		c.manager.Expect(notification("workloads:remove", `{"workloadId":"unknown","note":1,"originatedFrom":"`+nodeID+`"}`))

		c.manager.Send(notification("workloads:remove", `{"workloadId":"unknown"}`)) // not stamped: it matches nothing
		c.client.Expect(notification("workloads:remove", `{"workloadId":"unknown"}`))
		c.scheduler.Expect(notification("workloads:remove", `{"workloadId":"unknown"}`))
		c.allQuiet()
	})
}

func TestTheClientIsToldOnlyWhileItIsSubscribed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		proxy := tr.joinProxy(1)
		proxy.Send(event("workload:submitted", jobOf("", "b", "queued", "")))
		tr.client.Idle()
		proxy.Send(event("workload:submitted", jobOf("", "a", "queued", "")))
		synctest.Wait()
		list := `{"result":{"workloads":[` + stamped("a", "queued", "") + `,` + stamped("b", "queued", "") + `]}}`
		require.Equal(t, list, tr.client.Call("workloads:get-initial", "")) // in order, also without a subscription
		tr.client.Call("workloads:subscribe", "")
		tr.client.Idle() // no baseline
		proxy.Send(event("workload:started", jobOf("", "a", "running", "")))
		tr.client.Expect(upsert(stamped("a", "running", "")))
		tr.client.Call("workloads:unsubscribe", "")
		proxy.Send(event("workload:completed", jobOf("", "a", "completed", "")))
		tr.client.Idle()
	})
}

func TestOpenJobsOfAProxyThatDiedAreEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stage(t)
		c.proxy.Send(event("workload:started", jobOf("", "1", "running", `,"seq":3`)))
		c.tell("workload:started", stamped("1", "running", `,"seq":3`))
		c.manager.Send(upsert(jobOf(nodeID, "made here", "queued", "")))
		c.client.Next()
		c.scheduler.Next()
		// What it said last is still in the pipe when it dies.
		c.proxy.Send(event("workload:submitted", jobOf("", "2", "queued", `,"seq":1`)),
			event("workload:completed", jobOf("", "3", "completed", `,"seq":1`)))
		c.crash(c.proxy)
		died := time.Now().UnixMilli()
		c.tell("workload:submitted", stamped("2", "queued", `,"seq":1`))
		c.tell("workload:completed", stamped("3", "completed", `,"seq":1`))
		for id, seq := range map[string]int{"1": 4} {
			ended := fmt.Sprintf(`{"id":%q,"model":"m","engine":"ollama","runId":"r1","createdAt":1000,"originatedFrom":%q,`+
				`"state":"failed","completedAt":%d,"error":"proxy exited","seq":%d}`, id, nodeID, died, seq)
			c.tell("workload:errored", ended)
		}
		require.Contains(t, c.client.Next(), `"seq":2`)
		require.Contains(t, c.scheduler.Next(), `"seq":2`)
		require.Contains(t, c.manager.Next(), `"seq":2`)
		c.allQuiet() // the ingress's job lives on

		next := c.joinProxy(2)
		next.Send(event("workload:started", strings.Replace(jobOf("", "1", "running", ""), "r1", "r2", 1)))
		require.Contains(t, c.client.Next(), `"runId":"r2"`)
	})
}

func TestANewWorkloadManagerIsToldOfOwnJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stage(t)
		c.proxy.Send(event("workload:started", jobOf("", "1", "running", ``)),
			event("workload:completed", jobOf("", "2", "completed", ``)))
		c.manager.Next()
		c.manager.Next()
		c.manager.Send(upsert(jobOf(nodeID, "made here", "queued", "")), upsert(jobOf(otherNode, "1", "queued", "")))
		synctest.Wait()
		c.crash(c.manager)
		c.proxy.Send(event("workload:submitted", jobOf("", "3", "queued", ``))) // while there is none
		<-time.After(2 * time.Second)
		c.manager = c.join(workerWorkloads, 2)
		c.manager.Expect(
			event("workload:started", stamped("1", "running", ``)),
			event("workload:completed", stamped("2", "completed", ``)),
			event("workload:submitted", stamped("3", "queued", ``)),
			notification("workload:submitted", `{"workloadInfo":`+jobOf(nodeID, "made here", "queued", "")+`,"ingressMsSince":2000}`),
		)
		c.manager.Idle()
		c.registrations.mu.Lock()
		defer c.registrations.mu.Unlock()
		require.Equal(t, 14320, c.registrations.entries["wl"].Port)
	})
}

func TestJobsOfALostNodeFailWithItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stage(t)
		scanner := c.join(workerScanner, 1)
		node := `{"node":{"hostUuid":"` + otherNode + `","name":"desk","ip":"","trusted":true,"services":{},"lastSeen":1}}`
		scanner.Send(notification("discovery:node-discovered", node))
		require.Contains(t, c.scheduler.Next(), `"name":"desk"`)
		c.manager.Send(upsert(jobOf(otherNode, "1", "running", "")), upsert(jobOf(otherNode, "2", "running", `,"scheduledOn":"`+nodeID+`"`)))
		c.proxy.Send(event("workload:started", jobOf("", "3", "running", `,"scheduledOn":"`+otherNode+`"`)))
		for range 3 {
			c.scheduler.Next()
			c.client.Next()
		}
		c.manager.Next()
		scanner.Send(notification("discovery:node-removed", node))
		failed := fmt.Sprintf(`{"id":"1","model":"m","engine":"ollama","runId":"r1","originatedFrom":%q,"createdAt":1000,`+
			`"state":"failed","completedAt":%d,"error":"node desk went offline"}`, otherNode, time.Now().UnixMilli())
		c.client.Expect(upsert(failed))
		c.client.Idle() // neither what executes here nor what is ours
		c.manager.Idle()
	})
}

func TestSilentOriginsJobsFailAndTheHistoryIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cast{tree: sow(t)}
		dir := filepath.Join(t.TempDir(), "private")
		require.NoError(t, os.Mkdir(dir, 0o700))
		c.cfg.DataDir = dir
		c.workloads = newWorkloadFlow(c.Broker)
		end := c.workloads.start()
		c.serve()
		c.client.Next()
		c.client.Call("workloads:subscribe", "")
		c.manager = c.join(workerWorkloads, 1)
		c.manager.Send(upsert(jobOf(otherNode, "1", "running", "")), upsert(jobOf(otherNode, "2", "completed", fmt.Sprintf(`,"completedAt":%d`, time.Now().UnixMilli()))))
		c.client.Next()
		c.client.Next()
		c.client.Patience = time.Hour
		failed := c.client.Next() // five minutes later
		require.Contains(t, failed, `"error":"node `+otherNode+` stopped reporting this workload"`)
		c.manager.Idle()
		c.manager.Send(upsert(jobOf(otherNode, "3", "completed", fmt.Sprintf(`,"completedAt":%d`, time.Now().UnixMilli()))))
		synctest.Wait()
		end()
		history, err := os.ReadFile(filepath.Join(dir, historyFile))
		require.NoError(t, err)
		require.Equal(t, 3, strings.Count(string(history), "\n")-1, "%s", history) // 2, 3 and the bracket
		require.NotContains(t, string(history), "stopped reporting")

		next := newWorkloadFlow(c.Broker)
		next.start()()
		require.Len(t, next.index.All(1<<20), 2)
	})
}
