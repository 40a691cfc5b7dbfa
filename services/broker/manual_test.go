// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/shared/discovery"
)

// facadeLog is what a proxy, which brings up every facade it is asked for, is told
// of nodes.
type facadeLog struct {
	mu    sync.Mutex // guards lines
	lines []string   // method and params
}

// take returns what came since the last call, once nothing is on its way.
func (f *facadeLog) take() []string {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	lines := f.lines
	f.lines = nil
	return lines
}

// joinFacades attaches a proxy that answers.
func (tr *tree) joinFacades(generation int) (*incarnation, *facadeLog) {
	in, told := tr.join(workerProxy, generation), new(facadeLog)
	go func() { // ends with the streams
		for {
			line, err := in.Lines.ReadString('\n')
			if err != nil {
				return
			}
			var f struct {
				ID     *int
				Method string
				Params json.RawMessage
			}
			if json.Unmarshal([]byte(line), &f) != nil || f.ID == nil {
				continue
			}
			if strings.Contains(f.Method, "-manual") {
				told.mu.Lock()
				told.lines = append(told.lines, f.Method+" "+string(f.Params))
				told.mu.Unlock()
			}
			_, _ = fmt.Fprintln(in.Conn, result(*f.ID, string(f.Params))) // facade/enable is answered with its own port
		}
	}()
	tr.eventuallyUp()
	return in, told
}

// eventuallyUp waits for both facades: what is looked at on the way is real.
func (tr *tree) eventuallyUp() {
	tr.t.Helper()
	for range 100 {
		up := 0
		for _, s := range tr.facades.list {
			if tr.facades.isUp(s.engine) {
				up++
			}
		}
		if up == len(tr.facades.list) {
			return
		}
		<-time.After(time.Second)
	}
	tr.t.Fatal("the facades do not come up")
}

func manualStatus(id, address, more string) string {
	return fmt.Sprintf(`{"id":%q,"address":%q,"ollama_port":11434,"lmstudio_port":1234,"node_info_port":14318%s}`, id, address, more)
}

const bothUp = `,"ollama_up":true,"ollama_models":["a","","b"],"lmstudio_up":true,"lmstudio_models":["b","c"]`

func ids(nodes []discovery.AvailableNode) []string {
	list := []string{}
	for _, n := range nodes {
		list = append(list, n.ID+"="+n.HostUUID)
	}
	return list
}

func TestANodeGivenByAddressIsInTheDirectoryAndAtTheFacades(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		proxy, told := tr.joinFacades(1)
		manual := tr.join(workerManual, 1)
		manual.Send(notification("node/discovered", manualStatus("manual:h", "h", bothUp)))
		add := []string{
			`ollama:node/add-manual {"id":"manual:h","engine":"ollama","host":"h","port":11434,"addresses":["h"],"models":["a","","b"]}`,
			`lmstudio:node/add-manual {"id":"manual:h","engine":"lmstudio","host":"h","port":1234,"addresses":["h"],"models":["b","c"]}`,
		}
		require.Equal(t, add, told.take())
		require.Equal(t, []discovery.AvailableNode{{
			ID: "manual:h", Name: "manual:h", HostUUID: "manual:h", IPAddress: "h", Port: 14318, LastSeenSeconds: time.Now().Unix(),
			Models: []string{"a", "b", "c"}, ModelsByEngine: map[string][]string{"ollama": {"a", "b"}, "lmstudio": {"b", "c"}},
		}}, tr.nodes.available())
		require.Empty(t, tr.nodes.directory(nil).Nodes, "the relay is the scanner's")

		tr.crash(proxy)
		_, told = tr.joinFacades(2)
		require.ElementsMatch(t, add, told.take(), "a new proxy is told")

		manual.Send(notification("node/updated", manualStatus("manual:h", "h", `,"name":"desk","lmstudio_up":true`)))
		require.Equal(t, []string{
			`ollama:node/remove-manual {"id":"manual:h","engine":"ollama"}`,
			`lmstudio:node/add-manual {"id":"manual:h","engine":"lmstudio","host":"h","port":1234,"addresses":["h"]}`,
		}, told.take())
		require.Equal(t, "desk", tr.nodes.available()[0].Name)
		require.Nil(t, tr.nodes.available()[0].ModelsByEngine)

		tr.crash(manual)
		gone := []string{
			`ollama:node/remove-manual {"id":"manual:h","engine":"ollama"}`,
			`lmstudio:node/remove-manual {"id":"manual:h","engine":"lmstudio"}`,
		}
		require.Equal(t, gone, told.take())
		require.Empty(t, tr.nodes.available())

		manual = tr.join(workerManual, 2)
		manual.Send(notification("node/discovered", manualStatus("manual:h", "h", bothUp)))
		require.Equal(t, add, told.take(), "restored")
		manual.Send(notification("node/removed", manualStatus("manual:h", "", "")))
		require.Equal(t, gone, told.take())
		require.Empty(t, tr.nodes.available())
		for _, bad := range []string{"", "[]", `{"id":""}`} {
			manual.Send(notification("node/updated", bad))
		}
		require.Empty(t, told.take())
		require.Equal(t, 3, strings.Count(tr.log.String(), "undecodable"))
	})
}

func TestPeersAndThisNodeItselfAreNotGivenToTheFacades(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		_, told := tr.joinFacades(1)
		manual := tr.join(workerManual, 1)
		manual.Send(notification("node/discovered", manualStatus("p", "h", `,"peer":true,"node_info_up":true,"hostUuid":"u"`+bothUp)))
		for _, line := range told.take() {
			require.Contains(t, line, "remove-manual")
		}
		require.Equal(t, []string{"p=u"}, ids(tr.nodes.available()))

		port := tr.facades.list[0].boundPort()
		tr.facades.list[0].mu.Lock()
		tr.facades.list[0].port = 11500
		tr.facades.list[0].mu.Unlock()
		defer func() { tr.facades.list[0].port = port }()
		manual.Send(notification("node/discovered", manualStatus("me", "h", `,"hostUuid":"`+nodeID+`","ollama_up":true`)),
			notification("node/discovered", manualStatus("self", "h", `,"local":true`)))
		require.Empty(t, told.take())
		own := strings.Replace(manualStatus("own", "127.0.0.1", `,"local":true,"ollama_up":true,"lmstudio_up":true`), "11434", "11500", 1)
		manual.Send(notification("node/discovered", own))
		require.Equal(t, []string{
			`ollama:node/remove-manual {"id":"own","engine":"ollama"}`, // the facade itself
			`lmstudio:node/add-manual {"id":"own","engine":"lmstudio","host":"127.0.0.1","port":1234,"addresses":["127.0.0.1"]}`,
		}, told.take())
		require.Equal(t, []string{"own=own", "p=u"}, ids(tr.nodes.available()))
	})
}

func TestANodeMovesToItsIdentityAndSharesItsRecordWithTheScanner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		_, told := tr.joinFacades(1)
		manual, scanner := tr.join(workerManual, 1), tr.join(workerScanner, 1)
		manual.Send(notification("node/discovered", manualStatus("m", "h", `,"ollama_up":true`)))
		told.take()
		manual.Send(notification("node/updated", manualStatus("m", "h", `,"ollama_up":true,"hostUuid":"u"`)))
		require.Equal(t, []string{
			`ollama:node/add-manual {"id":"u","engine":"ollama","host":"h","port":11434,"addresses":["h"]}`,
			`lmstudio:node/remove-manual {"id":"u","engine":"lmstudio"}`,
			`ollama:node/remove-manual {"id":"m","engine":"ollama"}`,
			`lmstudio:node/remove-manual {"id":"m","engine":"lmstudio"}`,
		}, told.take(), "the new key first")
		require.Equal(t, []string{"m=u"}, ids(tr.nodes.available()))

		const heard = `{"node":{"hostUuid":"u","name":"desk","ip":"10.0.0.5","services":{}}}`
		scanner.Send(notification("discovery:node-discovered", heard))
		synctest.Wait()
		require.Equal(t, []string{"desk=u"}, ids(tr.nodes.available()), "the scanner's view counts")
		scanner.Send(notification("discovery:node-removed", heard))
		synctest.Wait()
		require.Equal(t, []string{"m=u"}, ids(tr.nodes.available()))
		scanner.Send(notification("discovery:node-discovered", heard))
		synctest.Wait()
		tr.crash(manual)
		require.Equal(t, []string{"desk=u"}, ids(tr.nodes.available()))
		require.Len(t, tr.nodes.directory(nil).Nodes, 1)
		tr.nodes.dropOlder(2)
		require.Empty(t, tr.nodes.available())
	})
}

func TestOfTwoAddressesOfANodeOneThatAnswersSpeaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		_, told := tr.joinFacades(1)
		manual := tr.join(workerManual, 1)
		manual.Send(
			notification("node/discovered", manualStatus("b", "good", `,"ollama_up":true,"hostUuid":"u"`)),
			notification("node/discovered", manualStatus("a", "old", `,"hostUuid":"u"`)))
		lines := told.take()
		require.Equal(t, `ollama:node/add-manual {"id":"u","engine":"ollama","host":"good","port":11434,"addresses":["good"]}`, lines[2])
		require.Equal(t, []string{"b=u"}, ids(tr.nodes.available()))

		go func() { tr.client.Send(request(7, "node/remove", `{"id":"u"}`)) }()
		require.Contains(t, manual.Next(), `"params":{"id":"a"}`, "the first by id")
		manual.Send(notification("node/updated", manualStatus("a", "old", `,"ollama_up":true,"hostUuid":"u"`)))
		require.Contains(t, told.take()[0], `"host":"old"`)
		manual.Send(notification("node/removed", manualStatus("a", "", "")))
		require.Contains(t, told.take()[0], `"host":"good"`)
		for _, id := range []string{"b", "nobody"} {
			go func() { tr.client.Send(request(8, "node/remove", `{"id":"`+id+`","more":1}`)) }()
			require.Contains(t, manual.Next(), `"params":{"id":"`+id+`","more":1}`, "an id passes unchanged")
		}
	})
}

func TestTheSchedulerIsToldOfTheLoadOfANodeGivenByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stage(t)
		c.client.Call("workloads:unsubscribe", "")
		manual, scanner := c.join(workerManual, 1), c.join(workerScanner, 1)
		manual.Send(notification("node/discovered", manualStatus(otherNode, "h",
			`,"node_info_up":true,"gpus":[{"utilization_percent":7},{"utilization_percent":70},{}],"telemetryValid":true,"msSince":5`)))
		require.ElementsMatch(t, []string{
			notification("scheduler:telemetry", telemetryOf(otherNode, 70, true, 5)), "nodes",
		}, c.schedulerLines(2))
		scanner.Send(notification("discovery:node-discovered", `{"node":{"hostUuid":"`+otherNode+`","name":"desk","services":{}}}`))
		c.schedulerLines(1)
		scanner.Send(notification("discovery:node-telemetry", telemetryOf(otherNode, 50, true, 1)))
		c.scheduler.Expect(notification("scheduler:telemetry", telemetryOf(otherNode, 50, true, 1)))
		<-time.After(time.Second)
		scanner.Send(notification("discovery:node-removed", `{"node":{"hostUuid":"`+otherNode+`"}}`))
		lines := strings.Join(c.schedulerLines(2), "")
		require.Contains(t, lines, `"gpuUtilizationPercent":70,"telemetryValid":true,"msSince":100`, "the other source, at its own age")
		c.crash(manual)
		require.ElementsMatch(t, []string{
			notification("scheduler:telemetry", telemetryOf(otherNode, 0, false, 0)), "nodes",
		}, c.schedulerLines(2))
		c.scheduler.Idle()
	})
}

// schedulerLines reads that many frames; a list of nodes stands as "nodes".
func (c *cast) schedulerLines(n int) []string {
	c.t.Helper()
	var lines []string
	for range n {
		line := c.scheduler.Next()
		if strings.Contains(line, "discovery:nodes-changed") {
			line = "nodes"
		}
		lines = append(lines, line)
	}
	return lines
}
