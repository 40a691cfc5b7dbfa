// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func telemetryOf(node string, use int, valid bool, age int) string {
	return fmt.Sprintf(`{"hostUuid":%q,"gpuUtilizationPercent":%d,"telemetryValid":%t,"msSince":%d}`, node, use, valid, age)
}

func TestANewSchedulerLearnsLoadThenNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		scanner, manager, proxy := tr.join(workerScanner, 1), tr.join(workerWorkloads, 1), tr.joinProxy(1)
		scanner.Send(notification("discovery:node-discovered", `{"node":{"hostUuid":"`+otherNode+`","name":"desk","services":{}}}`),
			notification("discovery:node-telemetry", telemetryOf("b", 50, true, 100)),
			notification("discovery:node-telemetry", telemetryOf("a", 7, false, 0)),
			notification("discovery:node-telemetry", telemetryOf("", 7, true, 0)))
		manager.Send(upsert(jobOf(otherNode, "1", "running", "")), upsert(jobOf(otherNode, "2", "failed", "")))
		proxy.Send(event("workload:submitted", strings.Replace(jobOf("", "1", "queued", ""), "1000", "999", 1)))
		synctest.Wait()
		require.Contains(t, tr.log.String(), "telemetry without a host uuid ignored")
		for generation := range 2 {
			<-time.After(time.Second)
			scheduler := tr.join(workerScheduler, generation+1)
			scheduler.Expect(
				upsert(strings.Replace(stamped("1", "queued", ""), "1000", "999", 1)),
				upsert(jobOf(otherNode, "1", "running", "")),
				notification("scheduler:telemetry", telemetryOf("a", 7, false, 0)),
				notification("scheduler:telemetry", telemetryOf("b", 50, true, 1100+1000*generation)),
			)
			require.Contains(t, scheduler.Next(), `"method":"discovery:nodes-changed","params":[{"id":"desk"`)
			tr.crash(scheduler)
		}
	})
}

func TestTheSchedulerIsToldOfEveryChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stage(t)
		c.client.Call("workloads:unsubscribe", "") // its subscriptions are not the scheduler's
		scanner := c.join(workerScanner, 1)
		scanner.Send(notification("discovery:node-telemetry", telemetryOf(otherNode, 50, true, 5)))
		c.scheduler.Expect(notification("scheduler:telemetry", telemetryOf(otherNode, 50, true, 5)))
		node := `{"node":{"hostUuid":"` + otherNode + `","name":"desk","services":{}}}`
		scanner.Send(notification("discovery:node-updated", node))
		require.Contains(t, c.scheduler.Next(), `"discovery:nodes-changed"`)
		scanner.Send(notification("discovery:node-removed", node))
		got := []string{c.scheduler.Next(), c.scheduler.Next()}
		require.ElementsMatch(t, []string{
			notification("discovery:nodes-changed", `[]`),
			notification("scheduler:telemetry", telemetryOf(otherNode, 0, false, 0)), // forgotten at once
		}, got)
		c.allQuiet()
	})
}

// priorityOf is a ranking of that many nodes for an engine.
func priorityOf(engine string, nodes int) string {
	list := []string{}
	for n := range nodes {
		list = append(list, strconv.Itoa(n))
	}
	encoded, _ := json.Marshal(list)
	return notification("schedule:priority", fmt.Sprintf(`{"engine":%q,"nodes":%s,"ranks":[{"id":"0","pending":%d,"gpuPressure":1,"rank":0}]}`, engine, encoded, nodes))
}

// ranking reads up to the next call with a ranking and returns its id and generation.
func (in *incarnation) ranking() (id, generation int) {
	in.t.Helper()
	for {
		var frame struct {
			ID     int
			Method string
			Params struct {
				Generation int
				Nodes      []string
				Ranks      []struct{ Pending int }
			}
		}
		require.NoError(in.t, json.Unmarshal([]byte(in.Next()), &frame))
		if frame.Method == "node/set-priority" {
			require.Len(in.t, frame.Params.Ranks, 1)
			require.Len(in.t, frame.Params.Nodes, frame.Params.Ranks[0].Pending)
			return frame.ID, frame.Params.Generation
		}
	}
}

func TestTheProxyIsToldTheNewestRankingOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		scheduler := tr.join(workerScheduler, 1)
		scheduler.Next()
		scheduler.Send(priorityOf("ollama", 1), priorityOf("lmstudio", 1)) // no proxy yet
		synctest.Wait()
		proxy := tr.join(workerProxy, 1)
		id, generation := proxy.ranking()
		require.Equal(t, 1, generation)
		scheduler.Send(priorityOf("ollama", 2), priorityOf("lmstudio", 2), priorityOf("ollama", 3), priorityOf("lmstudio", 3))
		synctest.Wait()
		proxy.Send(result(id, `{"count":1}`))
		id, generation = proxy.ranking()
		require.Equal(t, 3, generation) // 2 was superseded before its turn
		proxy.Send(failure(id, `{"code":-32000,"message":"no"}`))
		synctest.Wait()
		require.Contains(t, tr.log.String(), "ranking not passed on")
		scheduler.Send(priorityOf("lmstudio", 3))

		tr.crash(proxy)
		proxy = tr.join(workerProxy, 2)
		_, generation = proxy.ranking()
		require.Equal(t, 3, generation) // the one there is
		tr.client.Idle()                // none of it is for clients
	})
}

func TestAnUndecodableRankingChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		scheduler := tr.join(workerScheduler, 1)
		scheduler.Next()
		scheduler.Send(notification("schedule:priority", `{"nodes":"a"}`), notification("schedule:priority", ""), notification("schedule:other", "{}"))
		synctest.Wait()
		_, generation := tr.priorities.ranking.Newest()
		require.Zero(t, generation)
		require.Equal(t, 2, strings.Count(tr.log.String(), "undecodable"))
	})
}

// TestASchedulerThatDoesNotReadHoldsUpNobody sends more than its link's queue takes
// and then lets it read: each job's newest state, and the nodes behind them.
func TestASchedulerThatDoesNotReadHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stage(t)
		c.client.Call("workloads:unsubscribe", "")
		long := strings.Repeat("x", 60_000)
		c.manager.leave() // it is not the subject
		const jobs = 160
		for _, state := range []string{"queued", "running", "completed"} {
			for n := range jobs {
				c.proxy.Send(event("workload:started", jobOf("", strconv.Itoa(n), state, `,"error":"`+long+`"`)))
			}
			long = "short"
		}
		synctest.Wait()
		require.Contains(t, c.client.Call("broker:status", ""), `"version"`)
		scanner := c.join(workerScanner, 1)
		scanner.Send(notification("discovery:node-updated", `{"node":{"hostUuid":"`+otherNode+`","name":"desk","services":{}}}`))
		synctest.Wait()
		last := map[string]string{}
		lines := 0
		for {
			line := c.scheduler.Next()
			if strings.Contains(line, "nodes-changed") {
				break
			}
			lines++
			var frame struct {
				Params struct{ WorkloadInfo struct{ ID, State string } }
			}
			require.NoError(t, json.Unmarshal([]byte(line), &frame))
			last[frame.Params.WorkloadInfo.ID] = frame.Params.WorkloadInfo.State
		}
		require.Len(t, last, jobs)
		for id, state := range last {
			require.Equal(t, "completed", state, id)
		}
		require.Less(t, lines, 3*jobs-100) // what waited has collapsed
	})
}
