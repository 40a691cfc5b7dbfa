// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/clustertrust"
	"nvpair/internal/clustertrust/clustertest"
)

const hello = `{"liveness":1,"version":"1.2.3"}`

// TestANewInventoryIsToldItsClusterAndItsServices: see BR-72 and MN-40.
func TestANewInventoryIsToldItsClusterAndItsServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		tr.registrations.set(registration("er", 14319))
		for generation := 1; generation <= 2; generation++ {
			info := tr.join(workerNodeInfo, generation)
			info.expect(
				notification("nodeinfo:set-cluster-identity", `{"clusterUuid":""}`),
				notification("nodeinfo:set-services", `{"services":{"er":14319}}`),
			)
			info.quiet()
			tr.registrations.set(registration("ol", 11434))
			info.expect(notification("nodeinfo:set-services", `{"services":{"er":14319,"ol":11434}}`))
			tr.registrations.set(registration("ol", 11434))
			tr.registrations.remove("lm")
			info.quiet()
			tr.registrations.remove("ol")
			info.expect(notification("nodeinfo:set-services", `{"services":{"er":14319}}`))
			info.quiet()
			tr.crash(info)
		}
		tr.registrations.remove("er") // with nobody to tell
	})
}

// TestTheInventoryIsAdvertisedWhileItHasItsPort: not from its start on, for the
// port may be another program's.
func TestTheInventoryIsAdvertisedWhileItHasItsPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		scanner := tr.join(workerScanner, 1)
		synctest.Wait() // it has had its replay
		const register, withdraw = `{"service":"ni","port":14318}`, `{"service":"ni"}`
		for i := range 2 {
			info := tr.join(workerNodeInfo, 2*i+1)
			info.expect(
				notification("nodeinfo:set-cluster-identity", `{"clusterUuid":""}`),
				notification("nodeinfo:set-services", `{"services":{}}`),
			)
			scanner.quiet()
			info.send(notification("worker/hello", hello))
			scanner.expect(request(2*i+1, "discovery:register", register))
			info.expect(notification("nodeinfo:set-services", `{"services":{"ni":14318}}`))
			tr.crash(info)
			scanner.expect(request(2*i+2, "discovery:unregister", withdraw))

			lost := tr.join(workerNodeInfo, 2*i+2) // ends without a word
			tr.crash(lost)
			scanner.quiet()
		}
	})
}

// TestObservedAddressesGoToTheScanner: see DI-127.
func TestObservedAddressesGoToTheScanner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		info := tr.join(workerNodeInfo, 1)
		info.line()
		info.line()
		observed := func(params string) { info.send(notification("nodeinfo:observed-addresses", params)) }
		observed(`{"addresses":["10.0.0.4"]}`) // there is no scanner
		synctest.Wait()
		require.Contains(t, tr.log.String(), "DEBUG no scanner, dropped method=nodeinfo:observed-addresses")

		scanner := tr.join(workerScanner, 1)
		observed(`{"addresses":["10.0.0.4","fd00::4"],"more":1}`)
		scanner.expect(request(1, "discovery:set-observed-addresses", `{"addresses":["10.0.0.4","fd00::4"]}`))
		observed(`{"addresses":[]}`)
		scanner.expect(request(2, "discovery:set-observed-addresses", `{"addresses":[]}`)) // it did not wait for the answer to the first
		scanner.send(failure(2, `{"code":-32602,"message":"no"}`))
		<-time.After(relayDeadline)
		synctest.Wait()
		require.Contains(t, tr.log.String(), `DEBUG observed addresses not passed on err="error -32602: no"`)
		require.Contains(t, tr.log.String(), `DEBUG observed addresses not passed on err="no answer in time"`)

		observed("{}")
		observed(`{"addresses":"10.0.0.4"}`)
		info.send(notification("nodeinfo:no-such-event", "{}"))
		scanner.quiet()
		require.Contains(t, tr.log.String(), "WARN undecodable notification dropped worker=node-info")
		require.Contains(t, tr.log.String(), "DEBUG notification dropped worker=node-info method=nodeinfo:no-such-event")
	})
}

func TestTheInventoryIsStartedForEverybody(t *testing.T) {
	tr := sow(t)
	tr.cfg.ClusterDir = "/data/cluster"
	require.Equal(t, []string{"--node-id", nodeID}, tr.byName[workerNodeInfo].args(tr.Broker))
}

// TestMembershipIsToldWhenItChanges: see BR-72. The scanner's entry of this node is
// what tells that it did.
func TestMembershipIsToldWhenItChanges(t *testing.T) {
	self, peer := clustertest.New(t), clustertest.New(t)
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		tr.membership.trust = clustertrust.Open(self.Dir, slog.New(slog.DiscardHandler))
		scanner := tr.join(workerScanner, 1)
		synctest.Wait()
		info := tr.join(workerNodeInfo, 1)
		info.expect(
			notification("nodeinfo:set-cluster-identity", `{"clusterUuid":""}`),
			notification("nodeinfo:set-services", `{"services":{}}`),
		)
		entry := notification("discovery:node-updated", `{"node":{"hostUuid":"`+tr.cfg.NodeID+`","name":"self","ip":"10.0.0.1","services":{}}}`)
		scanner.send(entry)
		info.quiet()
		self.Pin(peer)
		scanner.send(entry)
		info.expect(notification("nodeinfo:set-cluster-identity", `{"clusterUuid":"`+self.UUID+`"}`))
		scanner.send(entry)
		info.quiet()
		self.Unpin(peer)
		scanner.send(entry)
		info.expect(notification("nodeinfo:set-cluster-identity", `{"clusterUuid":""}`))
		info.quiet()
	})
}
