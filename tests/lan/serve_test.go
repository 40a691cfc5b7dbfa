// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lan

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/shared/manualnodes"
	"nvpair/tests/harness"
)

const (
	// probedWithin bounds what the probes of nodes given by address find: they are 10 s apart, and names are kept for 5 s.
	probedWithin = time.Minute
	// goneWithin bounds the end of a tree.
	goneWithin = 30 * time.Second
)

// serveNode starts a headless tree, which nvpair's commands reach, and subscribes to its nodes. It is stopped at the
// end of the test.
func serveNode(t *testing.T, h *harness.Host) *node {
	t.Helper()
	n := &node{Host: h, t: t, proc: h.Start(h.Command("nvpair", "serve"))}
	t.Cleanup(func() {
		n.proc.Signal(syscall.SIGTERM)
		n.proc.AwaitExit(goneWithin)
	})
	var conn net.Conn
	eventually(t, patience, "a node at the control socket of "+h.Name, func() bool {
		sockets, err := filepath.Glob(filepath.Join(h.Dir, "run", "nvpair", "*.sock"))
		if err != nil || len(sockets) != 1 {
			return n.proc.Exited()
		}
		conn, err = net.Dial("unix", sockets[0])
		return err == nil || n.proc.Exited()
	})
	require.NotNil(t, conn, "the node on %s has ended", h.Name)
	n.client = harness.NewClient(t, conn)
	n.client.Await("app:ready", appearWithin, nil)
	n.client.MustCall("discovery:subscribe", nil, nil)
	return n
}

// kill ends all processes of the machine at once, as a loss of power would.
func (n *node) kill() {
	n.t.Helper()
	for _, p := range n.Processes() {
		if err := syscall.Kill(p.PID, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
			require.NoError(n.t, err)
		}
	}
	n.AwaitNone(goneWithin)
}

// run runs nvpair on the machine and returns its exit status and what it prints.
func (n *node) run(args ...string) (code int, out, diagnostics string) {
	n.t.Helper()
	var o, d bytes.Buffer
	cmd := n.Command("nvpair", args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &o, &d, patience
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		require.NoError(n.t, err)
	}
	return cmd.ProcessState.ExitCode(), o.String(), d.String()
}

// add gives the node another one by its address.
func (n *node) add(address, name string) {
	n.t.Helper()
	n.client.MustCall(manualnodes.MethodAdd, manualnodes.Add{Address: address, Name: name}, nil)
}

// given returns what is known of a node that was given by address, the zero value if it is not on the list.
func (n *node) given(id string) manualnodes.Status {
	n.t.Helper()
	var list manualnodes.Nodes
	n.client.MustCall(manualnodes.MethodList, nil, &list)
	if i := slices.IndexFunc(list.Nodes, func(s manualnodes.Status) bool { return s.ID == id }); i >= 0 {
		return list.Nodes[i]
	}
	return manualnodes.Status{}
}

// findsGiven waits until a node that was given by address is as it should be.
func (n *node) findsGiven(id, what string, ok func(manualnodes.Status) bool) {
	n.t.Helper()
	var last manualnodes.Status
	defer func() {
		if n.t.Failed() {
			n.t.Logf("%s as %s knows it: %+v", id, n.Name, last)
		}
	}()
	eventually(n.t, probedWithin, id+" "+what, func() bool {
		last = n.given(id)
		return ok(last)
	})
}

// isPeer satisfies findsGiven for a machine with a tree that answers, and tells its hardware.
func isPeer(uuid string) func(manualnodes.Status) bool {
	return func(s manualnodes.Status) bool {
		return s.Peer && s.NodeInfoUp && s.HostUUID == uuid && len(s.CPU) > 0 && len(s.Memory) > 0
	}
}

// serves satisfies findsGiven for an Ollama with exactly this model.
func serves(model string) func(manualnodes.Status) bool {
	return func(s manualnodes.Status) bool {
		return s.OllamaUp && !s.Peer && slices.Equal(s.OllamaModels, []string{model + ":latest"})
	}
}

// uuid returns the identity of the node itself.
func (n *node) uuid() string {
	n.t.Helper()
	var status struct{ NodeID string }
	n.client.MustCall("broker:status", nil, &status)
	require.NotEmpty(n.t, status.NodeID)
	return status.NodeID
}

// knows returns a node as this one knows it, the zero value for one it does not.
func (n *node) knows(name string) available {
	n.t.Helper()
	for _, other := range n.nodes() {
		if other.ID == name {
			return other
		}
	}
	return available{}
}

// startEngine starts the demo engine, a stand-in for an Ollama, for the whole network. It ends with the test.
func startEngine(t *testing.T, h *harness.Host, model string) *harness.Proc {
	t.Helper()
	p := h.Start(h.Command(harness.Program(t, "tests/engine/demo"), "--listen", "[::]:11434", "--models", model))
	t.Cleanup(p.Kill)
	return p
}

// awaitAnswer waits until the node answers a request for a model, asked on its own machine.
func (n *node) awaitAnswer(model string) {
	n.t.Helper()
	transport := &http.Transport{DialContext: n.DialContext, DisableKeepAlives: true}
	client := &http.Client{Transport: transport, Timeout: patience}
	var last string
	defer func() {
		if n.t.Failed() {
			n.t.Logf("the last answer for %s: %s", model, last)
		}
	}()
	eventually(n.t, probedWithin, "an answer of "+model, func() bool {
		resp, err := client.Post("http://127.0.0.1:11434/v1/chat/completions", "application/json",
			strings.NewReader(`{"model":"`+model+`","messages":[{"role":"user","content":"hello"}]}`))
		if err != nil {
			last = err.Error()
			return false
		}
		defer func() { _ = resp.Body.Close() }()
		raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		last = string(raw)
		return err == nil && resp.StatusCode == http.StatusOK
	})
}
