// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/tests/harness"
)

// withNames returns a change of a command that makes a file its /etc/hosts.
func withNames(t *testing.T, file string) func(*exec.Cmd) {
	t.Helper()
	unshare, err := exec.LookPath("unshare")
	require.NoError(t, err)
	return func(cmd *exec.Cmd) {
		program := len(cmd.Args) - 2 // and "serve"
		cmd.Args = slices.Insert(cmd.Args, program, unshare, "--mount", "/bin/sh", "-c",
			`mount --bind "$0" /etc/hosts && exec "$@"`, file)
	}
}

// addressOf returns where the node's clients see another one, "" while they do not.
func addressOf(t *testing.T, h *harness.Host, name string) string {
	t.Helper()
	_, out, _ := nvpair(t, h, "", "call", "discovery:get-nodes")
	var list struct {
		Nodes []struct{ Name, IPAddress string }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &list), out)
	for _, n := range list.Nodes {
		if n.Name == name {
			return n.IPAddress
		}
	}
	return ""
}

func TestANodeGivenByNameIsFoundByTheScannerAndFollowed(t *testing.T) {
	t.Parallel()
	alpha, beta := twoHosts(t)
	ip(t, alpha.Command("ip", "link", "set", "eth0", "multicast", "off"))
	hosts := filepath.Join(alpha.Dir, "hosts")
	const names, moved = betaIP + " desk.example\n", "10.77.0.22 desk.example\n"
	require.NoError(t, os.WriteFile(hosts, []byte(names), 0o644))
	node, other := serve(t, alpha, withNames(t, hosts)), serve(t, beta)

	code, out, diagnostics := nvpair(t, alpha, "", "node", "add", "desk.example", "--name", "desk")
	require.Equal(t, 0, code, "%s%s", out, diagnostics)
	harness.Eventually(t, probedWithin, "the scanner has it", func() bool { return addressOf(t, alpha, "desk") == betaIP })

	ip(t, beta.Command("ip", "addr", "del", betaIP+"/24", "dev", "eth0"))
	ip(t, beta.Command("ip", "addr", "add", "10.77.0.22/24", "dev", "eth0"))
	require.NoError(t, os.WriteFile(hosts, []byte(moved), 0o644)) // in place: it is mounted
	harness.Eventually(t, probedWithin, "it is where the name leads", func() bool { return addressOf(t, alpha, "desk") == "10.77.0.22" })
	stopNode(t, beta, other)
	stopNode(t, alpha, node)
}
