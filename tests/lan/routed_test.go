// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lan

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/shared/manualnodes"
)

func TestNodesBehindARouterAreKnownByAddress(t *testing.T) {
	t.Parallel()
	net := newSubnets(t)
	alpha := net.onLeft("alpha", 1)
	alpha.SetNames(map[string]string{"tower": "192.168.2.3"})
	a := serveNode(t, alpha)
	b, c, d := startNode(t, net.onRight("beta", 1)), startNode(t, net.onRight("gamma", 2)), startNode(t, net.onRight("delta", 3))
	b.sees(appearWithin, "beta", "delta", "gamma") // on its own side
	a.sees(appearWithin, "alpha")

	a.add("192.168.2.1", "four")
	a.add("fd00:2::2", "six")
	a.add("tower", "")
	a.findsGiven("four", "to be beta", isPeer(b.uuid()))
	a.findsGiven("six", "to be gamma", isPeer(c.uuid()))
	a.findsGiven("manual:tower", "to be delta", isPeer(d.uuid()))
	a.sees(appearWithin, "alpha", "four", "six", "manual:tower")
	require.Equal(t, available{ID: "four", HostUUID: b.uuid(), IPAddress: "192.168.2.1", Port: 14318}, a.knows("four"))
	require.Equal(t, "fd00:2::2", a.knows("six").IPAddress)
	require.Equal(t, d.uuid(), a.knows("manual:tower").HostUUID)

	alpha.SetNames(map[string]string{"tower": "192.168.2.2"})
	a.findsGiven("manual:tower", "to be gamma", isPeer(c.uuid()))
	alpha.SetNames(map[string]string{"tower": "192.168.2.3"})
	a.findsGiven("manual:tower", "to be delta again", isPeer(d.uuid()))

	b.kill()
	c.kill()
	for _, id := range []string{"four", "six"} {
		a.findsGiven(id, "to be silent", func(s manualnodes.Status) bool {
			return s.Peer && !s.NodeInfoUp && len(s.CPU) == 0 && strings.Contains(s.Error, "its nvpair does not answer")
		})
		a.proc.AwaitStderr(`node is gone .*name=`+id, evictWithin)
	}
	a.findsGiven("manual:tower", "to be delta still", isPeer(d.uuid()))
	b, c = startNode(t, b.Host), startNode(t, c.Host)
	a.findsGiven("four", "to be beta again", isPeer(b.uuid()))
	a.findsGiven("six", "to be gamma again", isPeer(c.uuid()))
}

func TestEnginesBehindARouterServeRequests(t *testing.T) {
	t.Parallel()
	net := newSubnets(t)
	alpha := net.onLeft("alpha", 1)
	alpha.SetNames(map[string]string{"desk": "192.168.2.3"})
	a := serveNode(t, alpha)
	for i, model := range []string{"first", "second", "third", "fourth"} {
		startEngine(t, net.onRight(model, i+1), model)
	}
	a.add("192.168.2.1", "four")
	a.add("fd00:2::2", "six")
	a.add("desk", "")
	a.findsGiven("four", "to list its model", serves("first"))
	a.findsGiven("six", "to list its model", serves("second"))
	a.findsGiven("manual:desk", "to list its model", serves("third"))
	a.sees(appearWithin, "alpha", "four", "six", "manual:desk")
	for _, model := range []string{"first", "second", "third"} {
		a.awaitAnswer(model)
	}
	alpha.SetNames(map[string]string{"desk": "192.168.2.4"})
	a.findsGiven("manual:desk", "to be the other machine", serves("fourth"))
	a.awaitAnswer("fourth")

	code, out, diagnostics := a.run("node", "remove", "fd00:2::2")
	require.Equal(t, []any{0, "removed six (fd00:2::2)\n", ""}, []any{code, out, diagnostics})
	a.sees(appearWithin, "alpha", "four", "manual:desk")
}
