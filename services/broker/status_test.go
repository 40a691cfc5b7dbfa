// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/supervise"
	"nvpair/shared/discovery"
)

func TestStatusIsTheWholeTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		tr.byName[workerErrors].child = supervise.New(tr.childConfig(tr.byName[workerErrors]))
		tr.byName[workerSettings].failed = "permission denied"
		store := tr.join(workerErrors, 1)
		store.Send(notification("worker/hello", `{"liveness":1,"version":"4.5.6"}`), notification("errors:update", `[{},{}]`))
		tr.client.Next()
		<-time.After(1500 * time.Millisecond)

		raw := strings.TrimSuffix(strings.TrimPrefix(tr.client.Call("broker:status", ""), `{"result":`), "}")
		raw = strings.Replace(raw, fmt.Sprintf(`"pid":%d,`, os.Getpid()), `"pid":99,`, 1)
		var got bytes.Buffer
		require.NoError(t, json.Indent(&got, []byte(raw), "", "  "))
		got.WriteByte('\n')
		golden(t, "status.json", got.Bytes())
	})
}

func TestStatusSaysWhichEnginesAFacadeHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		tr.join(workerProxy, 1)
		store := tr.join(workerErrors, 1)
		ollama, lmstudio := tr.facades.byID["ollama"], tr.facades.byID["lmstudio"]
		facades := func() string {
			synctest.Wait()
			var s struct{ Facades json.RawMessage }
			require.NoError(t, json.Unmarshal(encode(tr.status()), &s))
			return string(s.Facades)
		}
		require.Equal(t, `[{"engine":"ollama","ready":false,"port":0,"note":"it is being brought up"},`+
			`{"engine":"lmstudio","ready":false,"port":0,"note":"it is being brought up"}]`, facades())

		ollama.ready, ollama.port, ollama.aliases = json.RawMessage("{}"), 11434, []string{"127.0.0.1:8080"}
		ollama.judge([]int{11435, 11434, 8000, 8001}, []sighting{{engineThere, []string{"a", "b"}}, {}, {sight: nothing}, {sight: stranger}})
		lmstudio.judge([]int{1235}, []sighting{{sight: silence}})
		lmstudio.ready, lmstudio.port = json.RawMessage("{}"), 1236
		tr.facades.blocked(lmstudio.engine, "port 1234 is in use")
		tr.nodes.upsert(discovery.DirectoryNode{HostUUID: "u", Name: "desk", ModelsByEngine: map[string][]string{"ollama": {"m"}, "lmstudio": {}}}, 1)
		tr.nodes.upsert(discovery.DirectoryNode{HostUUID: nodeID, Name: "me", ModelsByEngine: map[string][]string{"ollama": {"m"}}}, 1)
		require.Equal(t, `[{"engine":"ollama","ready":true,"port":11434,"aliases":["127.0.0.1:8080"],"engines":[`+
			`{"port":11435,"up":true,"models":2},{"port":8000,"up":false,"note":"nothing listens there","models":0},`+
			`{"port":8001,"up":false,"note":"what answers there is no engine","models":0},{"node":"desk","up":true,"models":1}]},`+
			`{"engine":"lmstudio","ready":true,"port":1236,"note":"port 1234 is in use",`+
			`"engines":[{"port":1235,"up":false,"note":"it does not answer in time","models":0}]}]`, facades())

		ollama.aliases = nil // what the proxy says of it is only in the store's list
		store.Send(notification("errors:update", `[{"id":"ollama-proxy:ollama-host-alias-blocked","nodeId":"other","message":"not mine"},`+
			`{"id":"ollama-proxy:ollama-host-alias-blocked","nodeId":"`+nodeID+`","message":"8080 is taken"}]`))
		require.Contains(t, facades(), `"port":11434,"aliasNote":"8080 is taken","engines"`)
		tr.proxyEnded()
		require.NotContains(t, facades(), `"port":8000`)
	})
}
