// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"nvpair/tests/engine"
	"nvpair/tests/harness"
)

// gated is a tree whose proxies do not run before the test lets them, so that it is there in between.
type gated struct {
	*inference
	gate string // proxies run while this file exists
}

func startGated(t *testing.T) *gated {
	t.Helper()
	h := harness.NewHost(t, "alpha")
	g := &gated{gate: filepath.Join(h.Dir, "gate")}
	script := filepath.Join(h.Dir, "gated-proxy")
	require.NoError(t, os.WriteFile(script, fmt.Appendf(nil, "#!/bin/sh\nwhile [ ! -e %s ]; do sleep 0.02; done\nexec %s \"$@\"\n",
		g.gate, filepath.Join(harness.Bin(t), "nvpair-proxy")), 0o700))
	g.inference = newInference(t, h, engineOn(t, h, "127.0.0.1:11435", engine.Config{}), "--proxy-path="+script)
	return g
}

func (g *gated) open() {
	require.NoError(g.t, os.WriteFile(g.gate, nil, 0o600))
}

func (g *gated) shut() {
	require.NoError(g.t, os.Remove(g.gate))
}

// awaitAsked waits until the broker, which has seen that the port is free, has asked the proxy for the facade: the
// request is in a pipe that nobody reads yet.
func (g *gated) awaitAsked() {
	g.t.Helper()
	pid := 0
	harness.Eventually(g.t, inferenceWithin, "a proxy", func() bool {
		pid = pidOf(g.t, g.c, "nvpair-proxy")
		return pid != 0
	})
	in, err := os.Open(fmt.Sprintf("/proc/%d/fd/0", pid))
	require.NoError(g.t, err)
	defer in.Close()
	harness.Eventually(g.t, inferenceWithin, "the request for the facade", func() bool {
		return strings.Contains(peek(g.t, in), `"facade/enable"`)
	})
}

// peek returns what is in a pipe and leaves it there.
func peek(t *testing.T, pipe *os.File) string {
	t.Helper()
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer read.Close()
	defer write.Close()
	n, err := unix.Tee(int(pipe.Fd()), int(write.Fd()), 4<<10, unix.SPLICE_F_NONBLOCK)
	if err == unix.EAGAIN || n == 0 {
		return ""
	}
	require.NoError(t, err)
	text := make([]byte, n)
	_, err = read.Read(text)
	require.NoError(t, err)
	return string(text)
}

// occupy makes a stranger take the port of the facade.
func (g *gated) occupy() (leave func()) {
	g.t.Helper()
	var ln net.Listener
	require.NoError(g.t, g.h.Do(func() (err error) {
		ln, err = net.Listen("tcp", "127.0.0.1:11434")
		return err
	}))
	g.t.Cleanup(func() { _ = ln.Close() })
	return func() { require.NoError(g.t, ln.Close()) }
}

// requireComesBack proves that the facade serves elsewhere while the stranger is there, and that it comes back when the
// stranger leaves, without harm to what runs meanwhile.
func (g *gated) requireComesBack(leave func()) {
	g.t.Helper()
	g.c.Await("errors:update", inferenceWithin, func(raw json.RawMessage) bool {
		return strings.Contains(string(raw), "ollama-proxy:port-ownership-blocked")
	})
	elsewhere := 0
	harness.Eventually(g.t, inferenceWithin, "facade on another port", func() bool {
		elsewhere = facadePort(g.t, g.c)
		return elsewhere != 0
	})
	require.NotEqual(g.t, 11434, elsewhere)
	g.awaitModel(elsewhere)
	require.NoError(g.t, g.engine.Faults.Set(holdsStreams))
	streams := openStreams(g.t, g.http, elsewhere, 3)

	leave()
	harness.Eventually(g.t, inferenceWithin, "facade on its usual port", func() bool { return facadePort(g.t, g.c) == 11434 })
	require.Equal(g.t, 3, running(g.engine.Witness()), "the streams run on")
	g.engine.Faults.Clear()
	require.Equal(g.t, []int{3, 0}, firstTwo(endings(streams)))
	g.requireServed(11434)
	g.c.Await("errors:update", inferenceWithin, func(raw json.RawMessage) bool {
		return !strings.Contains(string(raw), "port-ownership-blocked")
	})
	g.jobs.awaitEnded(g.t, 4)
	require.Len(g.t, jobStates(g.t, g.c), 4)
}

func firstTwo(a, b int) []int { return []int{a, b} }

func TestAStrangerThatTakesTheFacadesPortBetweenLookAndBindDelaysNothing(t *testing.T) {
	t.Parallel()
	g := startGated(t)
	g.awaitAsked()
	leave := g.occupy()
	g.open()
	g.requireComesBack(leave)
}

func TestAStrangerThatTakesThePortOfADeadProxyIsWaitedOut(t *testing.T) {
	t.Parallel()
	g := startGated(t)
	g.open()
	g.awaitModel(11434)
	g.shut()
	g.killed("nvpair-proxy")
	g.awaitAsked()
	leave := g.occupy()
	g.open()
	g.requireComesBack(leave)
}

// The stranger is there before the broker looks.
func TestAStrangerThatTakesThePortWhileThereIsNoProxyIsWaitedOut(t *testing.T) {
	t.Parallel()
	g := startGated(t)
	g.open()
	g.awaitModel(11434)
	before := pidOf(t, g.c, "nvpair-proxy")
	process, err := os.FindProcess(before)
	require.NoError(t, err)
	require.NoError(t, process.Kill())
	var leave func()
	harness.Eventually(t, inferenceWithin, "the port is free", func() bool {
		var ln net.Listener
		err := g.h.Do(func() (err error) {
			ln, err = net.Listen("tcp", "127.0.0.1:11434")
			return err
		})
		leave = func() { require.NoError(t, ln.Close()) }
		return err == nil
	})
	g.awaitSuccessor("nvpair-proxy", before)
	g.requireComesBack(leave)
}
