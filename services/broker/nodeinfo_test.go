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
			info.Expect(
				notification("nodeinfo:set-cluster-identity", `{"clusterUuid":""}`),
				notification("nodeinfo:set-services", `{"services":{"er":14319}}`),
			)
			info.Idle()
			tr.registrations.set(registration("ol", 11434))
			info.Expect(notification("nodeinfo:set-services", `{"services":{"er":14319,"ol":11434}}`))
			tr.registrations.set(registration("ol", 11434))
			tr.registrations.remove("lm")
			info.Idle()
			tr.registrations.remove("ol")
			info.Expect(notification("nodeinfo:set-services", `{"services":{"er":14319}}`))
			info.Idle()
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
			info.Expect(
				notification("nodeinfo:set-cluster-identity", `{"clusterUuid":""}`),
				notification("nodeinfo:set-services", `{"services":{}}`),
			)
			scanner.Idle()
			info.Send(notification("worker/hello", hello))
			scanner.Expect(request(2*i+1, "discovery:register", register))
			info.Expect(notification("nodeinfo:set-services", `{"services":{"ni":14318}}`))
			tr.crash(info)
			scanner.Expect(request(2*i+2, "discovery:unregister", withdraw))

			lost := tr.join(workerNodeInfo, 2*i+2) // ends without a word
			tr.crash(lost)
			scanner.Idle()
		}
	})
}

// TestObservedAddressesGoToTheScanner: see DI-127.
func TestObservedAddressesGoToTheScanner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		info := tr.join(workerNodeInfo, 1)
		info.Next()
		info.Next()
		observed := func(params string) { info.Send(notification("nodeinfo:observed-addresses", params)) }
		observed(`{"addresses":["10.0.0.4"]}`) // there is no scanner
		synctest.Wait()
		require.Contains(t, tr.log.String(), "DEBUG no scanner, dropped method=nodeinfo:observed-addresses")

		scanner := tr.join(workerScanner, 1)
		observed(`{"addresses":["10.0.0.4","fd00::4"],"more":1}`)
		scanner.Expect(request(1, "discovery:set-observed-addresses", `{"addresses":["10.0.0.4","fd00::4"]}`))
		observed(`{"addresses":[]}`)
		scanner.Expect(request(2, "discovery:set-observed-addresses", `{"addresses":[]}`)) // it did not wait for the answer to the first
		scanner.Send(failure(2, `{"code":-32602,"message":"no"}`))
		<-time.After(relayDeadline)
		synctest.Wait()
		require.Contains(t, tr.log.String(), `DEBUG observed addresses not passed on err="error -32602: no"`)
		require.Contains(t, tr.log.String(), `DEBUG observed addresses not passed on err="no answer in time"`)

		observed("{}")
		observed(`{"addresses":"10.0.0.4"}`)
		info.Send(notification("nodeinfo:no-such-event", "{}"))
		scanner.Idle()
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
		info.Expect(
			notification("nodeinfo:set-cluster-identity", `{"clusterUuid":""}`),
			notification("nodeinfo:set-services", `{"services":{}}`),
		)
		entry := notification("discovery:node-updated", `{"node":{"hostUuid":"`+tr.cfg.NodeID+`","name":"self","ip":"10.0.0.1","services":{}}}`)
		scanner.Send(entry)
		info.Idle()
		self.Pin(peer)
		scanner.Send(entry)
		info.Expect(notification("nodeinfo:set-cluster-identity", `{"clusterUuid":"`+self.UUID+`"}`))
		scanner.Send(entry)
		info.Idle()
		self.Unpin(peer)
		scanner.Send(entry)
		info.Expect(notification("nodeinfo:set-cluster-identity", `{"clusterUuid":""}`))
		info.Idle()
	})
}
