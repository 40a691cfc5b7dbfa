// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lan

import (
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/tests/harness"
)

const (
	// appearWithin bounds the time from a start, or from a question that is asked again, to being seen, and from a goodbye
	// to being forgotten.
	appearWithin = 30 * time.Second
	// followWithin bounds the time from a change of the network to being seen there: two seconds, and what a busy machine
	// adds. No timer is as short (DI-107).
	followWithin = 9 * time.Second
	// evictWithin is a minute of misses, half a minute more where nobody at all is heard, and what a busy machine adds.
	evictWithin = 4 * time.Minute
)

// lookEvery is how often lists are looked at: a hundred times a second would be a load of its own.
const lookEvery = 200 * time.Millisecond

// eventually is harness.Eventually with fewer looks.
func eventually(t *testing.T, d time.Duration, what string, cond func() bool) {
	t.Helper()
	var next time.Time
	harness.Eventually(t, d, what, func() bool {
		now := time.Now()
		if now.Before(next) {
			return false
		}
		next = now.Add(lookEvery)
		return cond()
	})
}

// node is a machine with a tree.
type node struct {
	*harness.Host
	proc   *harness.Proc
	client *harness.Client
	t      *testing.T
}

// available is a node as a client sees it.
type available struct {
	ID          string   `json:"id"`
	HostUUID    string   `json:"hostUuid"`
	IPAddress   string   `json:"ipAddress"`
	IPAddresses []string `json:"ipAddresses"` // with two or more
	Port        int      `json:"port"`        // of its node-info, 0 while it has told none
}

// startNode starts a tree on a host and subscribes to its nodes.
func startNode(t *testing.T, h *harness.Host) *node {
	t.Helper()
	n := &node{Host: h, t: t}
	n.proc, n.client = harness.StartBroker(t, h)
	n.client.MustCall("discovery:subscribe", nil, nil)
	return n
}

func (n *node) nodes() []available {
	n.t.Helper()
	var list struct{ Nodes []available }
	n.client.MustCall("discovery:get-nodes", nil, &list)
	return list.Nodes
}

// names returns the names of the nodes that this one knows, its own first in the alphabet or not.
func (n *node) names() []string {
	var names []string
	for _, other := range n.nodes() {
		names = append(names, other.ID)
	}
	slices.Sort(names)
	return names
}

// sees waits until the node knows exactly these.
func (n *node) sees(within time.Duration, names ...string) {
	n.t.Helper()
	slices.Sort(names)
	var last []string
	defer func() {
		if n.t.Failed() {
			n.t.Logf("%s knows %q instead of %q", n.Name, last, names)
		}
	}()
	eventually(n.t, within, n.Name+" to know other nodes", func() bool {
		last = n.names()
		return slices.Equal(names, last)
	})
}

// knowsPorts waits until every node that it knows has told where its node-info is: the first records of a node that
// starts lack it, and one of which nothing else was heard cannot be asked whether it lives.
func (n *node) knowsPorts() {
	n.t.Helper()
	eventually(n.t, appearWithin, n.Name+" to know the services of other nodes", func() bool {
		return !slices.ContainsFunc(n.nodes(), func(other available) bool { return other.Port == 0 })
	})
}

// three are three nodes on a bridge that know each other.
func three(t *testing.T) (bridge *harness.Bridge, nodes []*node) {
	t.Helper()
	bridge = harness.NewBridge(t)
	for i, name := range []string{"alpha", "beta", "gamma"} {
		h := harness.NewHost(t, name)
		bridge.Attach(h, []string{"192.168.7.1/24", "192.168.7.2/24", "192.168.7.3/24"}[i])
		nodes = append(nodes, startNode(t, h))
	}
	for _, n := range nodes {
		n.sees(appearWithin, "alpha", "beta", "gamma")
		n.knowsPorts()
	}
	return bridge, nodes
}

func TestThreeMachinesSeeEachOtherAndOneLeaves(t *testing.T) {
	t.Parallel()
	_, nodes := three(t)
	for _, n := range nodes {
		for _, other := range n.nodes() {
			want := map[string]string{"alpha": "192.168.7.1", "beta": "192.168.7.2", "gamma": "192.168.7.3"}[other.ID]
			require.Equal(t, want, other.IPAddress, "%s as %s knows it", other.ID, n.Name)
		}
	}
	require.NoError(t, nodes[2].proc.Stdin.Close())
	require.Equal(t, 0, nodes[2].proc.AwaitExit(appearWithin))
	nodes[0].sees(appearWithin, "alpha", "beta") // in order: at once, not after a minute
	nodes[1].sees(appearWithin, "alpha", "beta")
}

func TestAMachineThatIsCutOffIsForgottenAndComesBack(t *testing.T) {
	t.Parallel()
	bridge, nodes := three(t)
	bridge.Cut(nodes[2].Host)
	nodes[0].sees(evictWithin, "alpha", "beta")
	nodes[2].sees(evictWithin, "gamma")
	bridge.Heal(nodes[2].Host)
	for _, n := range nodes {
		n.sees(appearWithin, "alpha", "beta", "gamma")
	}
}

// Every answer of node-info is a sign of life; only new machines stay unknown.
func TestBlockedMulticastRemovesNobody(t *testing.T) {
	t.Parallel()
	bridge, nodes := three(t)
	for _, n := range nodes {
		bridge.BlockMulticast(n.Host, true)
	}
	late := harness.NewHost(t, "delta")
	bridge.Attach(late, "192.168.7.4/24")
	bridge.BlockMulticast(late, true)
	started := time.Now()
	d := startNode(t, late)
	eventually(t, 2*evictWithin, "more than a minute to pass", func() bool {
		for _, n := range nodes {
			require.Equal(t, []string{"alpha", "beta", "gamma"}, n.names(), n.Name)
		}
		return time.Since(started) > 75*time.Second
	})
	require.Equal(t, []string{"delta"}, d.names())
	for _, n := range nodes {
		bridge.BlockMulticast(n.Host, false)
	}
	bridge.BlockMulticast(late, false)
	for _, n := range append(nodes, d) {
		n.sees(appearWithin, "alpha", "beta", "delta", "gamma")
	}
}

// A machine that stands still takes connections: it may go on any moment.
func TestAFrozenMachineIsNotForgottenAndAKilledOneIs(t *testing.T) {
	t.Parallel()
	_, nodes := three(t)
	nodes[1].kill()
	frozen := nodes[2].Processes()
	signal(t, frozen, syscall.SIGSTOP)
	t.Cleanup(func() { signal(t, frozen, syscall.SIGCONT) }) // it would not end otherwise
	nodes[0].sees(evictWithin, "alpha", "gamma")
	signal(t, frozen, syscall.SIGCONT)
	nodes[2].sees(evictWithin, "alpha", "gamma")
}

func TestAMachineIsKnownByTheAddressAPersonWouldGive(t *testing.T) {
	t.Parallel()
	bridge := harness.NewBridge(t)
	laptop, desk := newLaptop(t, bridge), harness.NewHost(t, "desk")
	bridge.Attach(desk, "192.168.7.2/24")
	startNode(t, laptop)
	d := startNode(t, desk)
	d.sees(appearWithin, "desk", "laptop")
	for _, n := range d.nodes() {
		if n.ID == "laptop" {
			require.Equal(t, "192.168.7.1", n.IPAddress)
		}
	}
}

func TestAChangeOfAddressIsFollowed(t *testing.T) {
	t.Parallel()
	_, nodes := three(t)
	nodes[1].IP("addr del 192.168.7.2/24 dev eth0", "addr add 192.168.7.22/24 brd + dev eth0")
	eventually(t, followWithin, "the new address", func() bool {
		return slices.ContainsFunc(nodes[0].nodes(), func(n available) bool { return n.ID == "beta" && n.IPAddress == "192.168.7.22" })
	})
}

func TestTwoMachinesOfOneNameAreTwo(t *testing.T) {
	t.Parallel()
	bridge := harness.NewBridge(t)
	var nodes []*node
	for _, cidr := range []string{"192.168.7.1/24", "192.168.7.2/24", "192.168.7.3/24"} {
		h := harness.NewHost(t, "same")
		bridge.Attach(h, cidr)
		nodes = append(nodes, startNode(t, h))
	}
	for _, n := range nodes {
		n.sees(appearWithin, "same", "same", "same")
	}
}

func TestARestartedScannerFindsEverybodyAgain(t *testing.T) {
	t.Parallel()
	_, nodes := three(t)
	var status struct {
		Workers []struct {
			Name string
			PID  int
		}
	}
	nodes[0].client.MustCall("broker:status", nil, &status)
	for _, w := range status.Workers {
		if w.Name == "scanner" {
			require.NoError(t, syscall.Kill(w.PID, syscall.SIGKILL))
		}
	}
	nodes[0].client.Await("errors:update", appearWithin, func(raw json.RawMessage) bool {
		return strings.Contains(string(raw), "supervisor:subprocess-crashed:scanner")
	})
	nodes[1].sees(appearWithin, "alpha", "beta", "gamma")
	nodes[0].sees(appearWithin, "alpha", "beta", "gamma")
}
