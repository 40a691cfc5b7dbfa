// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/shared/discovery"
)

// A record is anybody's; what the node itself says of its services counts.
func TestARecordAloneTakesNoServiceAway(t *testing.T) {
	inLAN(t, func(l *lan) {
		var told atomic.Pointer[string]
		says := func(services string) { told.Store(&services) }
		says(`{"ni":14318,"ol":11434}`)
		l.serve("10.0.0.2:14318", nil, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"GPUs":[],"telemetryValid":false,"msSince":0,"hostUuid":%q,"services":%s}`, other, *told.Load())
		})
		p, _, _ := l.node("beta", "10.0.0.2", other)
		require.NoError(l.t, p.SetTXT(append(l.record("10.0.0.2", other), "ol=11434")))
		serves := func(n discovery.DirectoryNode) bool { return n.Services["ol"].Port == 11434 }
		n, _ := l.after(discovery.NotifyNodeDiscovered, other)
		require.True(l.t, serves(n), "%v", n)
		l.without("no such event", 10*time.Second) // it has proved to be itself

		require.NoError(l.t, p.SetTXT(append(l.record("10.0.0.2", other), "cl=9"))) // forged
		l.without(`"cl":`, 20*time.Second)

		says(`{"ni":14318}`) // its engine stopped
		require.NoError(l.t, p.SetTXT(l.record("10.0.0.2", other)))
		l.until(discovery.NotifyNodeUpdated, other, func(n discovery.DirectoryNode) bool { return !serves(n) })
	})
}

// TestAGatewayThatTakesEveryConnectionIsNoNode: its answer is not that of a node-info.
func TestAGatewayThatTakesEveryConnectionIsNoNode(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"not found": http.NotFound,
		"a page":    func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
	} {
		inLAN(t, func(l *lan) {
			l.up("10.0.0.2", other)
			_, leave, crash := l.node("beta", "10.0.0.2", other)
			l.after(discovery.NotifyNodeUpdated, other)
			l.down("10.0.0.2")
			l.serve("10.0.0.2:14318", nil, answer)
			leave()
			_, took := l.after(discovery.NotifyNodeRemoved, other)
			require.Less(l.t, took, 5*time.Second, name)
			crash()
		})
	}
}

func TestOneMachineIsNotManyNodes(t *testing.T) {
	d := newDirectory(func(string, any) {})
	for i := range 100 {
		uuid := fmt.Sprint("fake-", i)
		d.put(discovery.DirectoryNode{HostUUID: uuid, IP: "10.0.0.4", IPs: []string{"10.0.0.4"}})
		d.learn(uuid, inventory{hostUUID: uuid, at: "10.0.0.4"})
	}
	require.Len(t, d.unproven(0), 100-maxProvenAt)
	d.put(discovery.DirectoryNode{HostUUID: "real", IPs: []string{"10.0.0.9"}})
	d.learn("real", inventory{hostUUID: "real", at: "10.0.0.9"})
	require.True(t, d.isProven("real"))
}

func TestWhatOthersCallThingsHasNoControlCharacters(t *testing.T) {
	controls := strings.Repeat("\x01", 128)
	i, err := parseInventory([]byte(`{"GPUs":[{"name":"` + strings.Repeat(`\u0001`, 128) + `"}],"hostUuid":"u"}`))
	require.NoError(t, err)
	require.Equal(t, `[{"name":""}]`, string(i.described().gpus))
	r := parseRecord([]string{"uuid=u" + controls, controls + "=9", "ol=1", strings.Repeat("k", 200) + "=9", "a\"b=9"})
	require.Equal(t, "u", r.hostUUID)
	require.Equal(t, map[string]discovery.Service{"ol": {Port: 1}}, r.services)
}
