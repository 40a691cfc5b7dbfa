// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/shared/discovery"
)

func registration(service string, port int) discovery.Registration {
	return discovery.Registration{Service: service, Port: port}
}

// TestRegistrationsAreSentWhenTheyChange: see BR-42.
func TestRegistrationsAreSentWhenTheyChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		scanner := tr.join(workerScanner, 1)
		synctest.Wait() // it has had its replay
		set := func(service string, port int) { tr.registrations.set(registration(service, port)) }
		set("wl", 14320)
		scanner.Expect(request(1, "discovery:register", `{"service":"wl","port":14320}`))
		scanner.Send(result(1, `{"ok":true}`))
		set("wl", 14320)
		set("cl", 0)
		set("cl", -1)
		set("", 14321)
		scanner.Idle()
		set("wl", 2)
		scanner.Expect(request(2, "discovery:register", `{"service":"wl","port":2}`))
		scanner.Send(failure(2, `{"code":-32602,"message":"no"}`))
		synctest.Wait()
		require.Contains(t, tr.log.String(), `WARN service not registered service=wl err="error -32602: no"`)

		tr.registrations.remove("cl")
		scanner.Idle()
		tr.registrations.remove("wl")
		scanner.Expect(request(3, "discovery:unregister", `{"service":"wl"}`))
		<-time.After(relayDeadline)
		synctest.Wait()
		require.Contains(t, tr.log.String(), `WARN service not withdrawn service=wl err="no answer in time"`)
	})
}

func TestANewScannerIsToldEverythingInKeyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		for _, service := range []string{"wl", "cl", "ni", "ec", "gone"} {
			tr.registrations.set(registration(service, 1))
		}
		tr.registrations.remove("gone")
		for generation := 1; generation <= 2; generation++ {
			scanner := tr.join(workerScanner, generation)
			for i, service := range []string{"cl", "ec", "ni", "wl"} {
				scanner.Expect(request(i+1, "discovery:register", `{"service":"`+service+`","port":1}`))
			}
			scanner.Idle()
			tr.crash(scanner)
		}
	})
}

func TestTheErrorStoreIsAdvertised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		scanner := tr.join(workerScanner, 1)
		synctest.Wait() // it has had its replay
		store := tr.join(workerErrors, 1)
		scanner.Expect(request(1, "discovery:register", `{"service":"er","port":14319}`))
		tr.crash(store)
		tr.join(workerErrors, 2)
		scanner.Idle()
	})
}
