// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/mdns"
	"nvpair/shared/discovery"
)

// at returns the strings of a node's record at addresses, best first.
func (l *lan) at(hostUUID string, ips ...string) []string {
	return append(l.record(ips[0], hostUUID), "ips="+strings.Join(ips, ","))
}

func TestARecordPutsNoAddressBeforeTheOneInUse(t *testing.T) {
	inLAN(t, func(l *lan) {
		l.up("10.0.0.2", other)
		p, _, _ := l.node("beta", "10.0.0.2", other)
		l.after(discovery.NotifyNodeUpdated, other)
		l.up("10.0.0.66", "the forger")
		require.NoError(l.t, p.SetTXT(l.at(other, "10.0.0.66", "10.0.0.2")))
		n := l.until(discovery.NotifyNodeUpdated, other, func(n discovery.DirectoryNode) bool { return len(n.IPs) == 2 })
		require.Equal(l.t, []string{"10.0.0.2", "10.0.0.66"}, n.IPs)
		l.without(`"ip":"10.0.0.66"`, time.Minute)
	})
}

func TestABetterAddressIsUsedOnceTheNodeAnswersThere(t *testing.T) {
	inLAN(t, func(l *lan) {
		l.up("10.0.0.2", other)
		p, _, _ := l.node("beta", "10.0.0.2", other)
		l.after(discovery.NotifyNodeUpdated, other)
		l.up("10.0.0.9", other) // a cable was plugged in
		require.NoError(l.t, p.SetTXT(l.at(other, "10.0.0.9", "10.0.0.2")))
		n := l.until(discovery.NotifyNodeUpdated, other, func(n discovery.DirectoryNode) bool { return n.IP == "10.0.0.9" })
		require.Equal(l.t, []string{"10.0.0.9", "10.0.0.2"}, n.IPs)
		l.without(`"ip":"10.0.0.2"`, time.Minute)
	})
}

func TestWhoAnswersAsAnotherNodeDoesNotTakeItsPlace(t *testing.T) {
	inLAN(t, func(l *lan) {
		l.up("10.0.0.2", other)
		l.node("beta", "10.0.0.2", other)
		l.after(discovery.NotifyNodeUpdated, other)
		p, _, _ := l.node("gamma", "10.0.0.66", "the forger")
		l.after(discovery.NotifyNodeDiscovered, "the forger")
		l.up("10.0.0.66", other)
		require.NoError(l.t, p.SetTXT(l.record("10.0.0.66", other)))
		l.without(`"hostUuid":"`+other+`","name":"gamma"`, time.Minute)
	})
}

// A node that starts and stops at once may never have said where it can be asked.
func TestTheGoodbyeOfANodeThatCouldNeverBeAskedIsBelieved(t *testing.T) {
	inLAN(t, func(l *lan) {
		p, leave, _ := l.node("beta", "10.0.0.2", other)
		require.NoError(l.t, p.SetTXT([]string{"v=1", "uuid=" + other, "ip=10.0.0.2"}))
		l.after(discovery.NotifyNodeDiscovered, other)
		leave()
		_, took := l.after(discovery.NotifyNodeRemoved, other)
		require.LessOrEqual(l.t, took, 2*time.Second)
	})
}

func TestANodeThatIsHeardIsNotRenamedByItsAddress(t *testing.T) { // MN-32
	inLAN(t, func(l *lan) {
		l.up("10.0.0.2", other)
		l.node("beta", "10.0.0.2", other)
		l.after(discovery.NotifyNodeUpdated, other)
		for range 10 { // at every point of a scan
			l.Notify(discovery.MethodStaticNode, `{"hostUuid":"`+other+`","name":"manual:10.0.0.2","addresses":["10.0.0.2"],"services":{"ni":{"port":14318}}}`)
			l.without("manual:10.0.0.2", 700*time.Millisecond)
		}
	})
}

// TestTheFirstRecordSaysWhereTheNodeCanBeAsked: others would know of a node without
// a means to find out whether it lives.
func TestTheFirstRecordSaysWhereTheNodeCanBeAsked(t *testing.T) {
	for name, tt := range map[string]struct {
		register bool
		want     string
	}{"with node-info": {true, "ni=14318"}, "without": {false, "v=1"}} {
		inLAN(t, func(l *lan) {
			machine := l.net.Host()
			machine.Attach("eth0", "lan", "10.0.0.3/24")
			conn := mdns.New(mdns.Config{Network: machine})
			first := make(chan []string, 1) // the rest is not looked at
			_, err := conn.Browse(serviceType, func(s mdns.Sighting) {
				select {
				case first <- s.TXT:
				default:
				}
			})
			require.NoError(l.t, err)
			ctx, cancel := context.WithCancel(l.t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); conn.Run(ctx) }()
			defer func() { cancel(); <-ended }()
			if tt.register {
				l.without("no such event", 400*time.Millisecond)
				l.Notify(discovery.MethodRegister, `{"service":"ni","port":14318}`)
			}
			l.without("no such event", 3*time.Second)
			require.Contains(l.t, <-first, tt.want, name)
		})
	}
}

// TestALateSampleOfANodeThatLeftIsNotTold: the broker would keep it (DI-125).
func TestALateSampleOfANodeThatLeftIsNotTold(t *testing.T) {
	said := fmt.Sprintf(`{"GPUs":[{"name":"g","utilization_percent":4}],"telemetryValid":true,"msSince":1,"hostUuid":%q}`, other)
	for phase := range 8 { // of the samples, which take most of 3 s
		inLAN(t, func(l *lan) {
			var slow atomic.Bool
			l.serve("10.0.0.2:14318", nil, func(w http.ResponseWriter, _ *http.Request) {
				if slow.Load() {
					<-time.After(fetchTimeout - 100*time.Millisecond)
				}
				_, _ = io.WriteString(w, said)
			})
			_, leave, _ := l.node("beta", "10.0.0.2", other)
			l.after(discovery.NotifyNodeUpdated, other)
			slow.Store(true)
			l.without("no such event", 2*telemetryEvery+time.Duration(phase)*500*time.Millisecond)
			l.mu.Lock()
			i := l.infos["10.0.0.2:14318"]
			delete(l.infos, "10.0.0.2:14318") // it takes no new connection
			l.mu.Unlock()
			defer func() { _ = i.server.Close() }()
			leave()
			l.after(discovery.NotifyNodeRemoved, other)
			l.without(other, time.Minute)
		})
	}
}
