// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestANodeOfThisProductIsHandedToTheScanner(t *testing.T) { // DEC-65, DEC-118
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		scanner := tr.join(workerScanner, 1)
		synctest.Wait() // until it was told of all that is known so far, which is nothing
		in := tr.join(workerManual, 1)
		const peer = `{"id":"far","address":"192.0.2.9","hostUuid":"u9","peer":true,"node_info_up":true,"node_info_port":14318,` +
			`"services":{"ni":14318,"ol":11434},"telemetryValid":false,"msSince":0}`
		in.Send(notification("node/discovered", peer))
		told := scanner.Next()
		require.Contains(t, told, `"method":"discovery:static-node"`)
		require.Contains(t, told, `{"hostUuid":"u9","name":"far","addresses":["192.0.2.9"],"services":{"ni":{"port":14318},"ol":{"port":11434}}}`)
		in.Send(notification("node/updated", strings.Replace(peer, `"msSince":0`, `"msSince":7`, 1)))
		scanner.Idle()

		scanner.leave()
		scanner = tr.join(workerScanner, 2)
		require.Contains(t, scanner.Next(), `"method":"discovery:static-node"`, "a new one is told again")
		in.Send(notification("node/removed", `{"id":"far","address":"192.0.2.9"}`))
		require.Contains(t, scanner.Next(), `"method":"discovery:static-node-removed","params":{"hostUuid":"u9"}`)
	})
}

func TestAPeerGivenByNameIsHandedOverByTheAddressesItAnswersAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		scanner := tr.join(workerScanner, 1)
		synctest.Wait() // until it was told of all that is known so far, which is nothing
		in := tr.join(workerManual, 1)
		status := func(more string) string {
			return `{"id":"desk","address":"desk.local","hostUuid":"u9","peer":true,"node_info_port":14318` + more + `}`
		}
		told := func(addresses string) string {
			return `"params":{"hostUuid":"u9","name":"desk","addresses":` + addresses + `,"services":{"ni":{"port":14318},"ol":{"port":11434}}}`
		}
		const up = `,"node_info_up":true,"services":{"ni":14318,"ol":11434}`
		in.Send(notification("node/discovered", status(up)))
		in.Send(notification("node/updated", status(up+`,"addresses":["fe80::5","fe80::5%eth0","nonsense"]`)))
		scanner.Idle()
		in.Send(notification("node/updated", status(up+`,"addresses":["10.0.0.5","fe80::5","fd00::5"]`)))
		require.Contains(t, scanner.Next(), told(`["10.0.0.5","fd00::5"]`))

		in.Send(notification("node/updated", status(``))) // silent: neither its addresses nor its services are forgotten
		in.Send(notification("node/updated", status(up+`,"addresses":["10.0.0.5","fd00::5"]`)))
		scanner.Idle()
		in.Send(notification("node/updated", status(up+`,"addresses":["10.0.0.55"]`)))
		require.Contains(t, scanner.Next(), told(`["10.0.0.55"]`))

		in.Send(notification("node/updated", `{"id":"desk","address":"desk.local","hostUuid":"u9","ollama_up":true,"ollama_port":11434}`))
		require.Contains(t, scanner.Next(), `"method":"discovery:static-node-removed","params":{"hostUuid":"u9"}`, "it is a plain machine by now")
	})
}
