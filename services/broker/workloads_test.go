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
	require.Equal(t, `"result":{"subscribed":true}`, c.client.call("workloads:subscribe", ""))
	c.scheduler = c.join(workerScheduler, 1)
	c.scheduler.expect(notification("discovery:nodes-changed", `[]`))
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
			if _, err := in.lines.ReadString('\n'); err != nil {
				return
			}
		}
	}()
	return in
}

// tell requires that all three are told the same job, and the manager by method.
func (c *cast) tell(method, info string) {
	c.t.Helper()
	c.scheduler.expect(upsert(info))
	c.client.expect(upsert(info))
	c.manager.expect(event(method, info))
}

func (c *cast) allQuiet() {
	c.t.Helper()
	for _, p := range []*peer{c.scheduler.peer, c.client, c.manager.peer} {
		p.quiet()
	}
}

func TestAProxysJobIsStampedAndToldToAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stage(t)
		c.proxy.send(event("workload:submitted", jobOf("", "1", "queued", `,"seq":1,"later":{"x":1}`)))
		c.tell("workload:submitted", stamped("1", "queued", `,"seq":1,"later":{"x":1}`))
		c.proxy.send(event("workload:started", jobOf("", "1", "running", `,"seq":2`)))
		c.tell("workload:started", stamped("1", "running", `,"seq":2`))
		c.proxy.send(event("workload:submitted", jobOf(otherNode, "1", "queued", ``))) // a set origin stays
		c.tell("workload:submitted", jobOf(otherNode, "1", "queued", ``))
		c.proxy.send(event("workload:completed", jobOf("", "1", "completed", `,"seq":3`)))
		c.tell("workload:completed", stamped("1", "completed", `,"seq":3`))

		// What the index rejects, the peers judge for themselves.
		c.proxy.send(event("workload:started", jobOf("", "1", "running", `,"seq":9`)))
		c.manager.expect(event("workload:started", stamped("1", "running", `,"seq":9`)))
		c.allQuiet()
	})
}

func TestUndecodableJobsReachNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stage(t)
		for _, params := range []string{`{}`, `null`, `{"workloadInfo":{"id":7}}`, `{"workloadInfo":{"model":"m"}}`, `{"workloadInfo":null}`} {
			c.proxy.send(notification("workload:started", params))
			c.manager.send(notification("workloads:upsert", params))
		}
		c.proxy.send(notification("workloads:remove", `{}`), notification("workload:started", ""))
		c.manager.send(notification("workloads:remove", `{"workloadId":1}`))
		c.manager.send(event("workload:started", jobOf(otherNode, "1", "running", ""))) // not its method
		c.allQuiet()
		require.Equal(t, 13, strings.Count(c.log.String(), "undecodable notification dropped"), c.log)
	})
}

func TestWhatPeersAndIngressReportDoesNotGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stage(t)
		for _, info := range []string{jobOf(otherNode, "1", "running", ""), jobOf(nodeID, "made here", "queued", "")} {
			c.manager.send(notification("workloads:upsert", `{"workloadInfo":`+info+`,"more":1}`))
			c.scheduler.expect(upsert(info))
			c.client.expect(upsert(info))
		}
		c.manager.send(notification("workloads:remove", `{"workloadId":"1","originatedFrom":"`+otherNode+`"}`))
		removal := notification("workloads:remove", `{"workloadId":"1","originatedFrom":"`+otherNode+`"}`)
		c.scheduler.expect(removal)
		c.client.expect(removal)
		c.allQuiet()
		require.Equal(t, `"result":{"workloads":[`+jobOf(nodeID, "made here", "queued", "")+`]}`, c.client.call("workloads:get-initial", ""))
	})
}

func TestARemovalIsAlwaysPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stage(t)
		c.proxy.send(notification("workloads:remove", `{"workloadId":"unknown","note":1}`))
		removal := notification("workloads:remove", `{"workloadId":"unknown","originatedFrom":"`+nodeID+`"}`)
		c.scheduler.expect(removal)
		c.client.expect(removal)
		c.manager.expect(notification("workloads:remove", `{"workloadId":"unknown","note":1,"originatedFrom":"`+nodeID+`"}`))

		c.manager.send(notification("workloads:remove", `{"workloadId":"unknown"}`)) // not stamped: it matches nothing
		c.client.expect(notification("workloads:remove", `{"workloadId":"unknown"}`))
		c.scheduler.expect(notification("workloads:remove", `{"workloadId":"unknown"}`))
		c.allQuiet()
	})
}

func TestTheClientIsToldOnlyWhileItIsSubscribed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		proxy := tr.joinProxy(1)
		proxy.send(event("workload:submitted", jobOf("", "b", "queued", "")))
		tr.client.quiet()
		proxy.send(event("workload:submitted", jobOf("", "a", "queued", "")))
		synctest.Wait()
		list := `"result":{"workloads":[` + stamped("a", "queued", "") + `,` + stamped("b", "queued", "") + `]}`
		require.Equal(t, list, tr.client.call("workloads:get-initial", "")) // in order, also without a subscription
		tr.client.call("workloads:subscribe", "")
		tr.client.quiet() // no baseline
		proxy.send(event("workload:started", jobOf("", "a", "running", "")))
		tr.client.expect(upsert(stamped("a", "running", "")))
		tr.client.call("workloads:unsubscribe", "")
		proxy.send(event("workload:completed", jobOf("", "a", "completed", "")))
		tr.client.quiet()
	})
}

func TestOpenJobsOfAProxyThatDiedAreEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stage(t)
		c.proxy.send(event("workload:started", jobOf("", "1", "running", `,"seq":3`)))
		c.tell("workload:started", stamped("1", "running", `,"seq":3`))
		c.manager.send(upsert(jobOf(nodeID, "made here", "queued", "")))
		c.client.line()
		c.scheduler.line()
		// What it said last is still in the pipe when it dies.
		c.proxy.send(event("workload:submitted", jobOf("", "2", "queued", `,"seq":1`)),
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
		require.Contains(t, c.client.line(), `"seq":2`)
		require.Contains(t, c.scheduler.line(), `"seq":2`)
		require.Contains(t, c.manager.line(), `"seq":2`)
		c.allQuiet() // the ingress's job lives on

		next := c.joinProxy(2)
		next.send(event("workload:started", strings.Replace(jobOf("", "1", "running", ""), "r1", "r2", 1)))
		require.Contains(t, c.client.line(), `"runId":"r2"`)
	})
}

func TestANewWorkloadManagerIsToldOfOwnJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stage(t)
		c.proxy.send(event("workload:started", jobOf("", "1", "running", ``)),
			event("workload:completed", jobOf("", "2", "completed", ``)))
		c.manager.line()
		c.manager.line()
		c.manager.send(upsert(jobOf(nodeID, "made here", "queued", "")), upsert(jobOf(otherNode, "1", "queued", "")))
		synctest.Wait()
		c.crash(c.manager)
		c.proxy.send(event("workload:submitted", jobOf("", "3", "queued", ``))) // while there is none
		<-time.After(2 * time.Second)
		c.manager = c.join(workerWorkloads, 2)
		c.manager.expect(
			event("workload:started", stamped("1", "running", ``)),
			event("workload:completed", stamped("2", "completed", ``)),
			event("workload:submitted", stamped("3", "queued", ``)),
			notification("workload:submitted", `{"workloadInfo":`+jobOf(nodeID, "made here", "queued", "")+`,"ingressMsSince":2000}`),
		)
		c.manager.quiet()
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
		scanner.send(notification("discovery:node-discovered", node))
		require.Contains(t, c.scheduler.line(), `"name":"desk"`)
		c.manager.send(upsert(jobOf(otherNode, "1", "running", "")), upsert(jobOf(otherNode, "2", "running", `,"scheduledOn":"`+nodeID+`"`)))
		c.proxy.send(event("workload:started", jobOf("", "3", "running", `,"scheduledOn":"`+otherNode+`"`)))
		for range 3 {
			c.scheduler.line()
			c.client.line()
		}
		c.manager.line()
		scanner.send(notification("discovery:node-removed", node))
		failed := fmt.Sprintf(`{"id":"1","model":"m","engine":"ollama","runId":"r1","originatedFrom":%q,"createdAt":1000,`+
			`"state":"failed","completedAt":%d,"error":"node desk went offline"}`, otherNode, time.Now().UnixMilli())
		c.client.expect(upsert(failed))
		c.client.quiet() // neither what executes here nor what is ours
		c.manager.quiet()
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
		c.client.line()
		c.client.call("workloads:subscribe", "")
		c.manager = c.join(workerWorkloads, 1)
		c.manager.send(upsert(jobOf(otherNode, "1", "running", "")), upsert(jobOf(otherNode, "2", "completed", fmt.Sprintf(`,"completedAt":%d`, time.Now().UnixMilli()))))
		c.client.line()
		c.client.line()
		require.NoError(t, c.client.conn.SetReadDeadline(time.Time{}))
		failed, err := c.client.lines.ReadString('\n') // five minutes later
		require.NoError(t, err)
		require.Contains(t, failed, `"error":"node `+otherNode+` stopped reporting this workload"`)
		c.manager.quiet()
		c.manager.send(upsert(jobOf(otherNode, "3", "completed", fmt.Sprintf(`,"completedAt":%d`, time.Now().UnixMilli()))))
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
