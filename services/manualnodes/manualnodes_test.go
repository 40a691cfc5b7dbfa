// SPDX-License-Identifier: Apache-2.0

package manualnodes

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	wire "nvpair/shared/manualnodes"
)

// both is a machine with both engines, without node-info.
func both(host string) map[string]string {
	return map[string]string{
		host + ":11434/":         "Ollama is running",
		host + ":11434/api/tags": `{"models":[{"name":"llama3:8b"},{"name":"qwen"}]}`,
		host + ":1234/v1/models": `{"data":[{"id":"mistral"}]}`,
	}
}

const uuid = "0d0f7a52-28c5-4c0a-8b52-7d8f0d9d2a11"

func TestANodeIsAddedProbedListedAndRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, both("10.0.0.5"))
		c := start(t, newDir(t), n)
		require.Empty(t, c.list())
		answer, found := c.add(`{"address":"10.0.0.5"}`)
		require.Equal(t, wire.Status{
			ID: "manual:10.0.0.5", Address: "10.0.0.5", OllamaPort: 11434, LMStudioPort: 1234, NodeInfoPort: 14318,
		}, answer)
		want := answer
		want.OllamaUp, want.OllamaModels = true, []string{"llama3:8b", "qwen"}
		want.LMStudioUp, want.LMStudioModels = true, []string{"mistral"}
		require.Equal(t, want, found)
		require.Equal(t, "dial 10.0.0.5:14318", n.requests()[0], "node-info is asked first")

		<-time.After(3 * time.Second)
		list := c.list()
		require.Len(t, list, 1)
		require.EqualValues(t, 3000, *list[0].ProbeAgeMillis)
		require.EqualValues(t, 3000, *list[0].AnswerAgeMillis)

		<-time.After(time.Minute)
		c.Quiet() // a stable node without telemetry is no news
		require.Len(t, n.requests(), 6*4)

		c.Send(request("node/remove", `{"id":"manual:10.0.0.5"}`))
		require.Equal(t, wire.Status{ID: "manual:10.0.0.5"}, c.event("node/removed"))
		c.Expect(`{"jsonrpc":"2.0","id":7,"result":{"removed":true}}`)
		c.Expect(`{"jsonrpc":"2.0","method":"errors:clear","params":{"id":"manual-nodes:probe-failed:manual:10.0.0.5"}}`)
		var removed wire.Removed
		c.call("node/remove", `{"id":"manual:10.0.0.5"}`, &removed)
		require.False(t, removed.Removed)
		<-time.After(time.Minute)
		require.Empty(t, n.requests(), "without nodes nothing runs")
		c.Quiet()
		c.stop()
	})
}

func TestWhatCanNeverBeReachedIsRefusedWithAWordOnWhatToType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, nil)
		c := start(t, newDir(t), n)
		for _, tt := range []struct{ method, params, message string }{
			{"node/add", `null`, "not an object"},
			{"node/add", `[]`, "not an object"},
			{"node/add", `"10.0.0.5"`, "not an object"},
			{"node/add", `{}`, `"address" is required`},
			{"node/add", `{"address":""}`, `"address" is required`},
			{"node/add", `{"address":"  "}`, `"address" is required`},
			{"node/add", `{"address":5}`, "invalid params"},
			{"node/add", `{"address":"http://10.0.0.5"}`, "without http:// and without a path"},
			{"node/add", `{"address":"desk/api"}`, "without a path"},
			{"node/add", `{"address":"desk:11500"}`, `{"address":"desk","ports":{"ollama":11500}}`},
			{"node/add", `{"address":"10.0.0.5:port"}`, `"ports"`},
			{"node/add", `{"address":"[fd00::1]:11434"}`, "without the port"},
			{"node/add", `{"address":"a b"}`, "not a host name"},
			{"node/add", `{"address":"fe80::1%a/b"}`, "without a path"},
			{"node/add", `{"address":"fe80::1%a b"}`, "without the port"},
			{"node/add", `{"address":"a@b"}`, "not a host name"},
			{"node/add", `{"address":"a%25"}`, "not a host name"},
			{"node/add", `{"address":"224.0.0.251"}`, "a multicast address, which stands for many machines: type the machine's own"},
			{"node/add", `{"address":"239.255.255.255."}`, "multicast"},
			{"node/add", `{"address":"::ffff:224.0.0.1"}`, "multicast"},
			{"node/add", `{"address":"[ff02::1]"}`, "multicast"},
			{"node/add", `{"address":"ff02::1%eth0"}`, "multicast"},
			{"node/add", `{"address":"255.255.255.255"}`, "the broadcast address"},
			{"node/add", `{"address":"::ffff:255.255.255.255"}`, "the broadcast address"},
			{"node/add", `{"address":"fe80::1"}`, "link-local address, which does not say in which network it is: type another address"},
			{"node/add", `{"address":"300.1.1.1"}`, `"300.1.1.1" is not an IP address: it takes four numbers`},
			{"node/add", `{"address":"10.0.0"}`, "not an IP address"},
			{"node/add", `{"address":"10.77.0.14.5."}`, "not an IP address"},
			{"node/add", `{"address":"desk.5"}`, "or type the host name"},
			{"node/add", `{"address":"14"}`, "not an IP address"},
			{"node/add", `{"address":"` + strings.Repeat("a", 254) + `"}`, "longer than 253 bytes"},
			{"node/add", `{"address":"a","name":"` + strings.Repeat("a", 129) + `"}`, `"name" is longer`},
			{"node/add", `{"address":"a","name":"a\nb"}`, `not one line`},
			{"node/add", `{"address":"a","tls_port":65536}`, `"tls_port" must be`},
			{"node/add", `{"address":"a","ports":{"ollama":-1}}`, `"ports" must be`},
			{"node/remove", `null`, "not an object"},
			{"node/remove", `["a"]`, "not an object"},
		} {
			code, message := c.refused(tt.method, tt.params)
			require.Equal(t, -32602, code, tt.params)
			require.Contains(t, message, tt.message, tt.params)
		}
		code, _ := c.refused("node/other", `{}`)
		require.Equal(t, -32601, code)
		for _, silent := range []string{"node/add", "node/remove", "nodes/list"} {
			c.Send(`{"jsonrpc":"2.0","method":"` + silent + `","params":{"address":"10.0.0.5","id":"x"}}`)
		}
		require.Empty(t, c.list())
		c.Quiet()
		require.Empty(t, n.requests())
		c.stop()
	})
}

func TestAddressesOfAllKindsAreAskedAtTheirPorts(t *testing.T) {
	for _, tt := range []struct{ typed, params, asked string }{
		{"desk.local", "", "desk.local:11434/"},
		{" 10.0.0.5 ", "", "10.0.0.5:11434/"},
		{"fd00::5", "", "[fd00::5]:11434/"},
		{"[fd00::5]", "", "[fd00::5]:11434/"},
		{"fe80::1%eth0", "", "[fe80::1%eth0]:11434/"},
		{"10.77.0.14.", "", "10.77.0.14:11434/"},
		{"fd00::5.", "", "[fd00::5]:11434/"},
		{"desk5.local.", "", "desk5.local.:11434/"},
		{"2.desk", "", "2.desk:11434/"},
		{"desk", `,"ports":{"ollama":11500}`, "desk:11500/"},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(t, map[string]string{tt.asked: greeting})
			c := start(t, newDir(t), n)
			_, found := c.add(`{"address":"` + tt.typed + `"` + tt.params + `}`)
			require.True(t, found.OllamaUp, "%s: %v", tt.typed, n.requests())
			c.stop()
		})
	}
}

func TestARemovedNodeIsNeverDiscovered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, map[string]string{"10.0.0.5:14318/": "silent"})
		c := start(t, newDir(t), n)
		var status wire.Status
		c.call("node/add", `{"address":"10.0.0.5"}`, &status)
		synctest.Wait()
		c.Send(request("node/remove", `{"id":"manual:10.0.0.5"}`))
		c.event("node/removed")
		c.Next() // the answer
		c.Next() // the clear
		<-time.After(time.Minute)
		c.Quiet()
		c.stop()
	})
}

func TestAddingAgainKeepsTheEntryAndAsksAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newDir(t)
		n := newNetwork(t, both("10.0.0.5"))
		c := start(t, dir, n)
		c.add(`{"address":"10.0.0.5","ports":{"node_info":14400}}`)
		n.requests()
		var again wire.Status
		c.call("node/add", `{"address":"10.0.0.5"}`, &again)
		require.True(t, again.OllamaUp, "what is known stays known")
		require.Equal(t, 14400, again.NodeInfoPort, "what is not said stays")
		synctest.Wait()
		require.Len(t, n.requests(), 4)
		c.Quiet() // nothing has changed

		c.call("node/add", `{"address":"10.0.0.5","name":"desk"}`, &again)
		require.Equal(t, "manual:10.0.0.5", again.ID, "the id is fixed")
		require.Equal(t, "desk", again.Name)
		require.Equal(t, "desk", c.event("node/updated").Name)
		require.Len(t, c.list(), 1)
		require.JSONEq(t, `[{"id":"manual:10.0.0.5","address":"10.0.0.5","name":"desk","ports":{"node_info":14400}}]`, read(t, dir, listFile))
		c.stop()
	})
}

func TestANameThatIsKnownMovesItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, both("10.0.0.6"))
		n.set("10.0.0.5:14318/", "silent")
		c := start(t, newDir(t), n)
		var status wire.Status
		c.call("node/add", `{"address":"10.0.0.5","name":"desk","ports":{"ollama":5}}`, &status)
		synctest.Wait()
		_, found := c.add(`{"address":"10.0.0.6","name":"desk"}`) // the running probe ends unheard
		require.Equal(t, "desk", found.ID)
		require.Equal(t, "10.0.0.6", found.Address)
		require.Equal(t, 11434, found.OllamaPort, "nothing of the old place is kept")
		require.True(t, found.OllamaUp)
		require.Len(t, c.list(), 1)
		c.Quiet()
		c.stop()
	})
}

func info(more string) string {
	return `{"GPUs":[{"name":"A","utilization_percent":7}],"cpu":{"cores":8},"memory":{"total_bytes":9}` + more + `}`
}

// TestWhatALegFindsIsClearedWhenItFails: MN section 8. A node-info without an
// identity leaves the machine a plain one.
func TestWhatALegFindsIsClearedWhenItFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, both("h"))
		n.set("h:14318/v1/node-info", info(`,"telemetryValid":true,"msSince":5`))
		c := start(t, newDir(t), n)
		_, st := c.add(`{"address":"h"}`)
		require.True(t, st.OllamaUp && st.LMStudioUp && st.NodeInfoUp && st.TelemetryValid && !st.Peer)
		require.EqualValues(t, 5, st.AgeMillis)
		require.JSONEq(t, `[{"name":"A","utilization_percent":7}]`, string(st.GPUs))
		require.JSONEq(t, `{"cores":8}`, string(st.CPU))

		n.set("h:14318/v1/node-info", info(`,"telemetryValid":true,"msSince":6`))
		require.EqualValues(t, 6, c.event("node/updated").AgeMillis)

		n.set("h:14318/v1/node-info", "<html>")
		st = c.event("node/updated")
		require.False(t, st.NodeInfoUp || st.TelemetryValid)
		require.Nil(t, st.GPUs)
		require.Nil(t, st.CPU)
		require.Nil(t, st.Memory)
		require.True(t, st.OllamaUp)

		n.set("h:1234/v1/models", "rubbish")
		st = c.event("node/updated")
		require.True(t, st.LMStudioUp)
		require.Empty(t, st.LMStudioModels)

		n.drop("h:11434/api/tags")
		st = c.event("node/updated")
		require.True(t, st.OllamaUp)
		require.Empty(t, st.OllamaModels)

		n.set("h:11434/", "status 403")
		require.False(t, c.event("node/updated").OllamaUp)
		n.drop("h:1234/v1/models")
		st = c.event("node/updated")
		require.False(t, st.LMStudioUp)
		require.Equal(t, "port 11434: it answers with status 403; port 1234: connection refused", st.Error)
		c.stop()
	})
}

func TestAMachineThatRunsThisProductIsNotAskedForEngines(t *testing.T) {
	for name, answer := range map[string]string{
		"with services": info(`,"hostUuid":"` + uuid + `","services":{"ni":14318,"ol":11434}`),
		"older":         info(`,"hostUuid":"` + uuid + `"`),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t, both("10.0.0.5"))
				n.set("10.0.0.5:14318/v1/node-info", answer)
				c := start(t, newDir(t), n)
				_, st := c.add(`{"address":"10.0.0.5"}`)
				require.True(t, st.Peer && st.NodeInfoUp && !st.OllamaUp && !st.LMStudioUp)
				require.Equal(t, uuid, st.HostUUID)
				require.Contains(t, st.Error, "runs nvpair itself")
				require.Equal(t, name == "with services", st.Services["ol"] == 11434)

				n.drop("10.0.0.5:14318/v1/node-info") // its engines are its facades all the same
				st = c.event("node/updated")
				require.True(t, st.Peer && !st.NodeInfoUp)
				require.Equal(t, uuid, st.HostUUID, "kept")
				for _, asked := range n.requests() {
					require.Contains(t, asked, ":14318")
				}
				require.Contains(t, st.Error, "add the address again")

				var again wire.Status
				c.call("node/add", `{"address":"10.0.0.5"}`, &again)
				st = c.event("node/updated")
				require.True(t, !st.Peer && st.OllamaUp, "added again it may be a plain one")
				c.stop()
			})
		})
	}
}

func TestThisNodeIsNoNodeOfItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, both("me"))
		n.set("me:14318/v1/node-info", info(`,"hostUuid":"`+ownUUID+`"`))
		c := start(t, newDir(t), n)
		_, st := c.add(`{"address":"me"}`)
		require.True(t, st.Local && !st.Peer && !st.OllamaUp && !st.LMStudioUp)
		require.Contains(t, st.Error, "this machine itself")
		require.Contains(t, c.Next(), `"errors:report","params":{"id":"manual-nodes:probe-failed:manual:me","message":"Node manual:me at me is not used: `+
			`this is the address of this machine itself, whose own engines are found without being added. Remove it, or add it again `)
		<-time.After(time.Minute)
		c.Quiet() // once

		n.set("me:14318/v1/node-info", info(`,"hostUuid":"`+uuid+`"`)) // the address went to another machine
		const clear = `{"jsonrpc":"2.0","method":"errors:clear","params":{"id":"manual-nodes:probe-failed:manual:me"}}`
		c.Expect(clear)
		require.True(t, c.event("node/updated").Peer)
		n.set("me:14318/v1/node-info", info(`,"hostUuid":"`+ownUUID+`"`))
		c.event("node/updated")
		require.Contains(t, c.Next(), "is not used")
		n.drop("me:14318/v1/node-info")
		for _, port := range []string{"11434/", "1234/v1/models"} {
			n.drop("me:" + port)
		}
		require.False(t, c.event("node/updated").Local)
		require.Contains(t, c.Next(), "has not answered", "another matter")
		c.stop()
	})
}

func TestASilentNodeIsReportedOnceAndCleared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := newDir(t)
		n := newNetwork(t, map[string]string{})
		c := start(t, dir, n)
		_, st := c.add(`{"address":"10.0.0.5","name":"desk"}`)
		require.Equal(t, "ports 11434 and 1234: connection refused", st.Error)
		begin := time.Now()
		line := c.Next()
		require.Equal(t, 20*time.Second, time.Since(begin), "the third probe")
		var report struct {
			Method string
			Params map[string]any
		}
		require.NoError(t, json.Unmarshal([]byte(line), &report))
		require.Equal(t, "errors:report", report.Method)
		require.Equal(t, map[string]any{
			"id": "manual-nodes:probe-failed:desk", "severity": "warning", "action": "none", "timestamp": 0.0,
			"message": "Node desk at 10.0.0.5 has not answered for 20s: ports 11434 and 1234: connection refused. " +
				"If its address has changed, add it again by the current one, or better by its host name.",
		}, report.Params)
		<-time.After(time.Minute)
		c.Quiet()

		const clear = `{"jsonrpc":"2.0","method":"errors:clear","params":{"id":"manual-nodes:probe-failed:desk"}}`
		n.set("10.0.0.5:1234/v1/models", `{"data":[]}`)
		c.Expect(clear)
		require.True(t, c.event("node/updated").LMStudioUp)
		<-time.After(time.Minute)
		c.Quiet()
		c.stop()

		c = start(t, dir, n) // what its predecessor reported may stand
		c.Expect(clear)
		c.event("node/discovered")
		c.stop()
	})
}

func TestNodesAreProbedAtOnceButNotTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, map[string]string{})
		c := start(t, newDir(t), n)
		for i := range 20 {
			n.set(fmt.Sprintf("10.0.0.%d:14318/", i), "silent")
			c.Send(request("node/add", fmt.Sprintf(`{"address":"10.0.0.%d"}`, i)))
			c.Next()
		}
		begin := time.Now()
		for range 20 {
			c.event("node/discovered")
		}
		require.Equal(t, 3*silentFor, time.Since(begin), "three rounds of eight")
		require.Equal(t, maxProbes, n.most)
		c.stop() // in the middle of others
	})
}

func TestASlowNodeIsNotAskedTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, map[string]string{"h:14318/": "silent", "h:11434/": "silent", "h:1234/": "silent"})
		c := start(t, newDir(t), n)
		_, st := c.add(`{"address":"h"}`)
		require.Equal(t, "ports 11434 and 1234: no answer in time", st.Error)
		for range 5 {
			var again wire.Status
			c.call("node/add", `{"address":"h"}`, &again)
		}
		synctest.Wait()
		n.mu.Lock()
		require.Equal(t, map[string]int{"h": 1}, n.open)
		n.mu.Unlock()
		c.stop()
	})
}

func TestTooManyNodesAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, map[string]string{})
		var entries []saved
		for i := range maxNodes {
			entries = append(entries, saved{ID: fmt.Sprint(i), Address: fmt.Sprintf("h%d", i)})
		}
		text, err := json.Marshal(entries)
		require.NoError(t, err)
		dir := newDir(t)
		write(t, dir, listFile, string(text))
		c := start(t, dir, n)
		for range maxNodes {
			c.event("node/discovered")
		}
		code, message := c.refused("node/add", `{"address":"one.more"}`)
		require.Equal(t, -32000, code)
		require.Contains(t, message, "64 nodes already")
		var again wire.Status
		c.call("node/add", `{"address":"h3"}`, &again)
		require.Equal(t, "3", again.ID)
		c.stop()
	})
}
