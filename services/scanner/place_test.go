// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"context"
	"strings"
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
