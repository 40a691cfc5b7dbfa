// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of its orphaned grandchildren, so
// that it can see how they end. It stays so: a test beside may still need it.
func adoptOrphans(t *testing.T) {
	t.Helper()
	require.NoError(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

// killParent starts a worker by way of a parent, has it hang if so wished, kills
// the parent and returns how the worker ended and what it logged. The worker's
// input stays open all the time: this test holds its writing end.
func killParent(t *testing.T, hang bool) (status syscall.WaitStatus, log string) {
	t.Helper()
	inR, inW := pipe(t)
	outR, outW := pipe(t)
	errR, errW := pipe(t)
	pidR, pidW := pipe(t)
	parent := command("parent")
	parent.Stdout, parent.ExtraFiles = pidW, []*os.File{inR, outW, errW}
	require.NoError(t, parent.Start())
	t.Cleanup(func() { _ = parent.Process.Kill(); _ = parent.Wait() })
	for _, f := range []*os.File{inR, outW, errW, pidW} {
		require.NoError(t, f.Close())
	}
	var pid int
	_, err := fmt.Fscan(pidR, &pid)
	require.NoError(t, err)
	p := &process{in: inW, read: bufio.NewReader(outR)}
	require.Equal(t, ready, p.line(t))
	require.Equal(t, hello, p.line(t))
	if hang {
		_, err := io.WriteString(p.in, `{"jsonrpc":"2.0","id":1,"method":"hang"}`+"\n")
		require.NoError(t, err)
		require.Equal(t, `{"jsonrpc":"2.0","id":1,"result":"good night"}`, p.line(t))
	}
	require.NoError(t, parent.Process.Kill())
	text, err := io.ReadAll(errR) // until the worker is gone
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	require.NoError(t, err, "the orphan lives on")
	_, err = syscall.Wait4(pid, &status, 0, nil)
	require.NoError(t, err)
	return status, string(text)
}

func TestOrphanEndsThoughItsInputDoesNot(t *testing.T) {
	adoptOrphans(t)
	status, log := killParent(t, false)
	require.True(t, status.Exited(), status)
	require.Zero(t, status.ExitStatus())
	require.Contains(t, log, "[demo] WARN parent process died, shutting down\n")
}

func TestOrphanThatDoesNotEndIsEndedAfterItsGrace(t *testing.T) {
	t.Parallel() // it takes orphanGrace
	adoptOrphans(t)
	status, log := killParent(t, true)
	require.True(t, status.Exited(), status)
	require.Zero(t, status.ExitStatus())
	require.Contains(t, log, "[demo] WARN parent process died, shutting down\n")
}
