// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"encoding/json"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/tests/harness"
)

func TestAKilledBrokerLeavesNoWorker(t *testing.T) {
	t.Parallel()
	tr := startReal(t, nil)
	tr.awaitAnnounced()
	require.Greater(t, len(tr.h.Processes()), len(supervised))
	tr.p.Kill()
	tr.h.AwaitNone(orphansGoneWithin)
}

// Nobody needs to continue it: the kernel continues, and hangs up on, the stopped
// members of a process group that has just lost its last parent.
func TestAStoppedWorkerEndsWithItsKilledBroker(t *testing.T) {
	t.Parallel()
	tr := startReal(t, nil)
	tr.awaitAnnounced()
	tr.signal(tr.worker("errors").PID, syscall.SIGSTOP)
	tr.p.Kill()
	tr.h.AwaitNone(orphansGoneWithin)
}

// The port that a dead broker's worker held, and the lock of the data directory,
// are free for the next broker at once.
func TestAfterAKilledBrokerAnotherStartsAtOnce(t *testing.T) {
	t.Parallel()
	h := harness.NewHost(t, "alpha")
	for range 3 {
		cmd := h.Command("nvpair-ui-broker")
		cmd.Dir = harness.Bin(t)
		tr := follow(t, h, h.Start(cmd))
		tr.awaitAnnounced()
		tr.unchanged("scanner", "errors", "settings")
		tr.p.Kill()
	}
	h.AwaitNone(orphansGoneWithin)
}

// End of input does not come while somebody else holds the pipe's other end: here
// the test itself does, and a shell is the parent that dies.
func TestAnOrphanEndsAlthoughItsInputStaysOpen(t *testing.T) {
	t.Parallel()
	const shell = `exec 3<&0; "$@" <&3 & wait`
	binaries := []string{"nvpair-ui-broker"}
	for _, w := range supervised {
		binaries = append(binaries, w.binary)
	}
	for _, binary := range binaries {
		t.Run(binary, func(t *testing.T) {
			t.Parallel()
			h := harness.NewHost(t, "alpha")
			cmd := h.Command("sh", "-c", shell, "parent", filepath.Join(harness.Bin(t), binary))
			cmd.Dir = harness.Bin(t)
			parent := h.Start(cmd)
			c := newTally(t, parent)
			anything := func(json.RawMessage) bool { return true }
			if binary == "nvpair-ui-broker" {
				c.await("app:ready", anything)
			} else {
				c.await("worker/hello", anything)
			}
			parent.Kill()
			h.AwaitNone(orphansGoneWithin)
			_, err := parent.Stdin.WriteString("\n")
			require.ErrorIs(t, err, syscall.EPIPE, "the pipe was open until its last reader was gone")
		})
	}
}

// A worker that will not end is beyond a dead broker's reach, but holds up nobody.
func TestAnOrphanThatWillNotEndIsLeftAlone(t *testing.T) {
	t.Parallel()
	tr := startShort(t, "--settings-path="+fake(t, "ignores-the-signal"))
	tr.awaitAnnounced()
	stays := tr.worker("settings").PID
	tr.p.Kill()
	harness.Eventually(t, orphansGoneWithin, "only the fake is left", func() bool {
		left := tr.h.Processes()
		return len(left) == 1 && left[0].PID == stays
	})
	tr.signal(stays, syscall.SIGKILL)
	tr.h.AwaitNone(patience)
}
