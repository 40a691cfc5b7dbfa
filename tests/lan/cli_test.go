// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lan

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/shared/discovery"
	"nvpair/shared/manualnodes"
	"nvpair/tests/harness"
)

// newLaptop makes a machine with the interfaces of containers and tunnels, as developers have them, and the address
// 192.168.7.1 on the bridge.
func newLaptop(t *testing.T, bridge *harness.Bridge) *harness.Host {
	t.Helper()
	laptop := harness.NewHost(t, "laptop")
	laptop.IP("link add docker0 type bridge", "addr add 172.17.0.1/16 dev docker0", "link set docker0 up",
		"link add br-12ab type bridge", "addr add 172.18.0.1/16 dev br-12ab", "link set br-12ab up",
		"link add cni0 type bridge", "addr add 10.42.0.1/24 dev cni0", "link set cni0 up",
		"link add wg0 type bridge", "addr add 10.8.0.2/24 dev wg0", "link set wg0 up",
		"link add tailscale0 type bridge", "addr add 100.101.102.103/32 dev tailscale0", "link set tailscale0 up")
	bridge.Attach(laptop, "192.168.7.1/24")
	return laptop
}

func TestTheCommandLineListsAddsAndRemovesNodes(t *testing.T) {
	t.Parallel()
	bridge := harness.NewBridge(t)
	desk, shelf := harness.NewHost(t, "desk"), harness.NewHost(t, "shelf")
	n := serveNode(t, newLaptop(t, bridge))
	bridge.Attach(desk, "192.168.7.2/24")
	bridge.Attach(shelf, "192.168.7.3/24")
	d := startNode(t, desk)
	startEngine(t, shelf, "small")
	n.sees(appearWithin, "desk", "laptop")
	n.lists(`NAME  ADDRESS  SEEN  HARDWARE  MODELS  NOTE
desk  192.168.7.2  -  some  -  no engine
laptop  192.168.7.1  -  some  -  this node
`)

	require.Equal(t, "added shelf (192.168.7.3): Ollama at port 11434, models: 1\n", n.listed("node", "add", "192.168.7.3", "--name", "shelf"))
	require.Regexp(t, `^added manual:192.168.7.2 \(192.168.7.2\), but it serves nothing now: it runs nvpair itself`,
		n.listed("node", "add", "192.168.7.2"))
	n.lists(`NAME  ADDRESS  SEEN  HARDWARE  MODELS  NOTE
desk  192.168.7.2  0s  some  -  it runs nvpair itself, so its engines serve paired nodes only; added as manual:192.168.7.2
laptop  192.168.7.1  -  some  -  this node
shelf  192.168.7.3  0s  -  ollama 1
`)

	var all struct {
		Nodes  []discovery.AvailableNode
		Manual []manualnodes.Status
	}
	eventually(t, appearWithin, "nvpair nodes --json to tell the same", func() bool {
		all.Nodes, all.Manual = nil, nil
		require.NoError(t, json.Unmarshal([]byte(n.listed("nodes", "--json")), &all))
		return len(all.Nodes) == 3 && all.Nodes[0].Name == "desk"
	})
	for i, want := range []struct{ name, uuid, address string }{
		{"desk", d.uuid(), "192.168.7.2"}, {"laptop", n.uuid(), "192.168.7.1"}, {"shelf", "shelf", "192.168.7.3"},
	} {
		got := all.Nodes[i]
		require.Equal(t, []string{want.name, want.uuid, want.address}, []string{got.Name, got.HostUUID, got.IPAddress})
		require.Empty(t, got.IPAddresses, "of %s: containers and tunnels are nobody's business", got.Name)
	}
	require.Equal(t, map[string][]string{"ollama": {"small:latest"}}, all.Nodes[2].ModelsByEngine)
	require.Len(t, all.Manual, 2)

	require.Equal(t, "removed shelf (192.168.7.3)\n", n.listed("node", "remove", "shelf"))
	require.Equal(t, "removed manual:192.168.7.2 (192.168.7.2)\n", n.listed("node", "remove", "192.168.7.2"))
	n.sees(appearWithin, "desk", "laptop") // desk is still heard
	code, _, diagnostics := n.run("node", "remove", "shelf")
	require.Equal(t, 1, code)
	require.Contains(t, diagnostics, `no node "shelf" was added by address`)
}

// lists waits until nvpair nodes prints this. What was heard and what was given meet in it within seconds.
func (n *node) lists(want string) {
	n.t.Helper()
	var last string
	defer func() {
		if n.t.Failed() {
			n.t.Logf("nvpair nodes prints\n%s", last)
		}
	}()
	eventually(n.t, appearWithin, "nvpair nodes to print\n"+want, func() bool {
		last = n.listed("nodes")
		return last == want
	})
}

// listed returns what a command prints that succeeds, with two spaces between columns. How long ago something was is
// always 0s, and hardware, of which this machine has whatever it has, is some.
func (n *node) listed(args ...string) string {
	n.t.Helper()
	code, out, diagnostics := n.run(args...)
	require.Equal(n.t, []any{0, ""}, []any{code, diagnostics}, "nvpair %q", args)
	out = regexp.MustCompile(` +\n`).ReplaceAllString(out, "\n")
	out = regexp.MustCompile(`  +`).ReplaceAllString(out, "  ")
	out = regexp.MustCompile(`\b(\d+m)?\d+s\b`).ReplaceAllString(out, "0s")
	return regexp.MustCompile(`(?m)^((?:\S+  ){3})[^-H].*?(  )`).ReplaceAllString(out, "${1}some$2")
}

func TestARestartedMachineHasItsNodesAgain(t *testing.T) {
	t.Parallel()
	net := newSubnets(t)
	a, b, c := serveNode(t, net.onLeft("alpha", 1)), startNode(t, net.onLeft("beta", 2)), startNode(t, net.onRight("gamma", 1))
	startEngine(t, net.onRight("shelf", 2), "small")
	a.sees(appearWithin, "alpha", "beta")
	a.add("192.168.2.2", "shelf")
	a.add("192.168.2.1", "far")
	restored := func() {
		t.Helper()
		a.findsGiven("shelf", "to list its model", serves("small"))
		a.findsGiven("far", "to be gamma", isPeer(c.uuid()))
		a.sees(appearWithin, "alpha", "beta", "far", "shelf")
		a.awaitAnswer("small")
	}
	restored()
	before := a.uuid()
	a.kill()
	a = serveNode(t, a.Host)
	restored()
	require.Equal(t, before, a.uuid())
	b.sees(appearWithin, "alpha", "beta")
}
