// SPDX-License-Identifier: Apache-2.0

package filelock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/atomicfile"
)

// Modes of the test binary as a second process. Each says a word on stdout and
// ends with its input.
const (
	holdMode = "hold-lock"
	idleMode = "hold-nothing"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && (os.Args[1] == holdMode || os.Args[1] == idleMode) {
		os.Exit(child(os.Args[1], os.Args[2]))
	}
	os.Exit(m.Run())
}

func child(mode, path string) int {
	if mode == holdMode {
		l, err := Acquire(ended(), path, Info{PID: os.Getpid(), Kind: "child"})
		if err != nil {
			fmt.Println(err)
			return 1
		}
		defer l.Release()
	}
	fmt.Println("up")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// start runs the test binary in mode and returns it with its first line.
func start(t *testing.T, mode, path string) (*exec.Cmd, string) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe, mode, path)
	_, err = cmd.StdinPipe() // stays open until we wait, or die
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { kill(cmd) })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return cmd, line
}

// kill is kill -9, and returns when the process is gone.
func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// ended is a context for one try.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func lockPath(t *testing.T) string { return filepath.Join(t.TempDir(), "run", "x.lock") }

var me = Info{PID: 4711, StartTime: "noon", Kind: "launcher", Version: "1.2.3"}

func TestSecondHolderIsRefusedAndToldWhoHolds(t *testing.T) {
	path := lockPath(t)
	l, err := Acquire(ended(), path, me)
	require.NoError(t, err)

	_, err = Acquire(ended(), path, Info{})
	var held *HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, &HeldError{path, me}, held)
	require.EqualError(t, err, path+" is locked by launcher, pid 4711, since noon")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.JSONEq(t, `{"pid":4711,"startTime":"noon","kind":"launcher","version":"1.2.3"}`, string(data))

	require.NoError(t, l.Release())
	require.ErrorIs(t, l.Release(), os.ErrClosed)
	l, err = Acquire(ended(), path, Info{PID: 1}) // shorter than the content before
	require.NoError(t, err)
	info, isHeld, err := Holder(path)
	require.NoError(t, err)
	require.True(t, isHeld)
	require.Equal(t, Info{PID: 1}, info)
	require.NoError(t, l.Release())
}

func TestNobodyHoldsAMissingOrReleasedLock(t *testing.T) {
	path := lockPath(t)
	info, held, err := Holder(path)
	require.NoError(t, err)
	require.False(t, held)
	require.Zero(t, info)
	require.NoDirExists(t, filepath.Dir(path))

	l, err := Acquire(ended(), path, me)
	require.NoError(t, err)
	require.NoError(t, l.Release())
	require.FileExists(t, path)
	info, held, err = Holder(path)
	require.NoError(t, err)
	require.False(t, held)
	require.Zero(t, info)
}

func TestUnreadableContentDecidesNothing(t *testing.T) {
	path := lockPath(t)
	l, err := Acquire(ended(), path, me)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte("{garbage"), 0o600))
	info, held, err := Holder(path)
	require.NoError(t, err)
	require.True(t, held)
	require.Zero(t, info)
	_, err = Acquire(ended(), path, me)
	require.EqualError(t, err, path+" is locked by another process")
	require.NoError(t, l.Release())
}

func TestWaiterGetsTheLockWhenItIsReleased(t *testing.T) {
	path := lockPath(t)
	first, err := Acquire(ended(), path, me)
	require.NoError(t, err)
	got := make(chan error, 1)
	go func() {
		l, err := Acquire(t.Context(), path, Info{PID: 2})
		if err == nil {
			err = l.Release()
		}
		got <- err
	}()
	require.NoError(t, first.Release())
	require.NoError(t, <-got)
}

func TestWaiterGivesUpWithItsContext(t *testing.T) {
	path := lockPath(t)
	l, err := Acquire(ended(), path, me)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 3*pollEvery)
	defer cancel()
	_, err = Acquire(ctx, path, Info{})
	var held *HeldError
	require.ErrorAs(t, err, &held)
	require.Error(t, ctx.Err())
	require.NoError(t, l.Release())
}

func TestOneOfManyRacersWins(t *testing.T) {
	path := lockPath(t)
	won := make(chan *Lock, 16) // room for every racer
	var wg sync.WaitGroup
	for range cap(won) {
		wg.Go(func() {
			var held *HeldError
			l, err := Acquire(ended(), path, me)
			switch {
			case err == nil:
				won <- l
			case !errors.As(err, &held):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Len(t, won, 1)
	require.NoError(t, (<-won).Release())
}

func TestTestersDoNotKeepOthersFromTheLock(t *testing.T) {
	path := lockPath(t)
	l, err := Acquire(ended(), path, me)
	require.NoError(t, err)
	require.NoError(t, l.Release())
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if _, _, err := Holder(path); err != nil {
					t.Error(err)
				}
			}
		}
	})
	// Under such fire one try may fail, waiting must not.
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for range 10 {
		l, err := Acquire(ctx, path, me)
		if err != nil {
			t.Error(err)
			break
		}
		if err := l.Release(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
}

func TestKernelDropsTheLockOfAKilledProcess(t *testing.T) {
	path := lockPath(t)
	cmd, line := start(t, holdMode, path)
	require.Equal(t, "up\n", line)
	info, held, err := Holder(path)
	require.NoError(t, err)
	require.True(t, held)
	require.Equal(t, Info{PID: cmd.Process.Pid, Kind: "child"}, info)
	_, line = start(t, holdMode, path)
	require.Contains(t, line, fmt.Sprintf("locked by child, pid %d", cmd.Process.Pid))

	kill(cmd)
	l, err := Acquire(ended(), path, me)
	require.NoError(t, err)
	require.NoError(t, l.Release())
}

func TestChildrenDoNotInheritTheLock(t *testing.T) {
	path := lockPath(t)
	l, err := Acquire(ended(), path, me)
	require.NoError(t, err)
	_, line := start(t, idleMode, path)
	require.Equal(t, "up\n", line)
	require.NoError(t, l.f.Close()) // as at our death: no unlocking, which would end copies as well
	l, err = Acquire(ended(), path, me)
	require.NoError(t, err)
	require.NoError(t, l.Release())
}

func TestDirectoryIsNoLockFile(t *testing.T) {
	path := t.TempDir()
	var unsafe *atomicfile.UnsafeError
	_, err := Acquire(ended(), path, me)
	require.ErrorAs(t, err, &unsafe)
	_, _, err = Holder(path)
	require.ErrorAs(t, err, &unsafe)
}
