// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/shared/discovery"
)

func TestTheClientSeesOfANodeWhatPeopleAskFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a fixed time: 946684800
		tr := plant(t)
		scanner := tr.join(workerScanner, 1)
		tr.nodes.upsert(discovery.DirectoryNode{
			HostUUID: otherNode, Name: "tower", IP: "10.0.0.2",
			Services: map[string]discovery.Service{"ni": {Port: 14318}, "lm": {Port: 1234}},
			GPUs:     json.RawMessage(`[{"name":"RTX"}]`), CPU: json.RawMessage(`{"cores":8}`),
			Memory: json.RawMessage(`{"name":"` + strings.Repeat("x", maxHardwareBytes) + `"}`),
		}, 1)
		scanner.Send(notification("discovery:node-telemetry", telemetryOf(otherNode, 5, true, 100)))
		synctest.Wait()
		<-time.After(2 * time.Second)
		want := `{"id":"tower","name":"tower","hostUuid":"` + otherNode + `","ipAddress":"10.0.0.2","port":14318,"lastSeen":946684800,"trusted":false`
		require.Equal(t, `{"result":{"nodes":[`+want+`,"engines":["lmstudio"],"gpus":[{"name":"RTX"}],"cpu":{"cores":8},"msSinceAnswer":2100}]}}`,
			tr.client.Call("discovery:get-nodes", ""))
		require.Equal(t, `[`+want+`}]`, string(encode(tr.nodes.available())), "the scheduler needs none of it")
	})
}

func TestThisNodeShowsTheModelsOfItsOwnEngines(t *testing.T) {
	tr := sow(t)
	own := discovery.DirectoryNode{HostUUID: nodeID, Name: "me"}
	tr.nodes.upsert(own, 1)
	tr.nodes.upsert(discovery.DirectoryNode{HostUUID: otherNode, Name: "tower"}, 1)
	models := func() map[string][]string {
		nodes := tr.clientNodes()
		require.Nil(t, nodes[1].ModelsByEngine, "of this node only")
		return nodes[0].ModelsByEngine
	}
	require.Nil(t, models(), "nobody has looked")
	ollama, lmstudio := tr.facades.byID["ollama"], tr.facades.byID["lmstudio"]
	ollama.judge([]int{1, 2, 3}, []sighting{{engineThere, []string{"a", "b"}}, {sight: nothing}, {engineThere, []string{"b", "c"}}})
	lmstudio.judge([]int{1}, []sighting{{sight: engineThere}})
	require.Equal(t, map[string][]string{"ollama": {"a", "b", "c"}, "lmstudio": {}}, models())
	require.Equal(t, []string{"a", "b", "c"}, tr.clientNodes()[0].Models)
	own.Models = append(make([]string, 0, 8), "x")
	tr.nodes.upsert(own, 1)
	require.Equal(t, []string{"x", "a", "b", "c"}, tr.clientNodes()[0].Models)
	require.Empty(t, own.Models[:2][1], "the record's own list is not written to")
	own.ModelsByEngine = map[string][]string{"ollama": {"x"}}
	tr.nodes.upsert(own, 1)
	require.Equal(t, own.ModelsByEngine, models(), "who manages engines knows better")
}

func TestAnAddressOfThisMachineIsNewsForTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		in := tr.join(workerManual, 1)
		tr.client.Call("discovery:subscribe", "")
		tr.client.Expect(notification("discovery:nodes-changed", `[]`))
		in.Send(notification("node/discovered", `{"id":"manual:me","address":"me","local":true,"hostUuid":"`+nodeID+`"}`))
		tr.client.Expect(notification("discovery:nodes-changed", `[]`)) // nodes/list has it
		tr.client.Idle()
	})
}
