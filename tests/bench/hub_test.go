// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"regexp"
	"syscall"
	"testing"
	"time"

	"nvpair/tests/harness"
)

// startNode starts nvpair serve and returns it with the path of its socket, once its tree is ready.
func startNode(t *testing.T, h *harness.Host) (p *program, socket string) {
	t.Helper()
	p = start(t, h, "nvpair", "serve")
	p.within(callWithin)
	control := regexp.MustCompile(`^\s+control\s+(\S+)`)
	for {
		line, err := p.next()
		if err != nil {
			t.Fatalf("await the lines for people: %v", err)
		}
		if match := control.FindSubmatch(line); match != nil {
			return p, string(match[1])
		}
	}
}

// dialHub connects to the socket of nvpair serve.
func dialHub(t *testing.T, h *harness.Host, socket string) *wire {
	t.Helper()
	conn, err := h.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := newWire(conn, conn)
	if err := c.awaitNotification("app:ready"); err != nil {
		t.Fatal(err)
	}
	return c
}

// measureCommand measures nvpair call ping from its fork to its end.
func measureCommand(t *testing.T, h *harness.Host) figure {
	t.Helper()
	const commands = 30
	var took samples
	for range commands {
		p := start(t, h, "nvpair", "call", "ping")
		timer := time.NewTimer(callWithin)
		select {
		case at := <-p.exited:
			took = append(took, at.Sub(p.began))
		case <-timer.C:
			t.Fatalf("nvpair call ping has not ended within %v", callWithin)
		}
		timer.Stop()
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			t.Fatalf("nvpair call ping: %v", p.cmd.ProcessState)
		}
	}
	return figure{"nvpair call ping, whole command", ms(took.median()), "ms", took.span(), noBar(), ""}
}

// measureNodeStop ends a node by its signal.
func measureNodeStop(t *testing.T, h *harness.Host, p *program) figure {
	t.Helper()
	begin := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	return figure{"nvpair serve, signal to all gone", ms(p.awaitGone(t, h).Sub(begin)), "ms", "once", noBar(), ""}
}
