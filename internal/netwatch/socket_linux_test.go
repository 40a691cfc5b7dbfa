// SPDX-License-Identifier: Apache-2.0

package netwatch

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// inNamespace calls f on a thread in a network namespace of its own.
func inNamespace(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; errors.Is(err, unix.EPERM) {
		t.Skip("no right to make a network namespace")
	} else {
		require.NoError(t, err)
	}
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

func TestTheKernelTellsAndCloseEndsTheWait(t *testing.T) {
	var source Source
	var before, after []Address
	var err error
	inNamespace(t, func() {
		if source, err = newSystem().open(); err != nil {
			return
		}
		if before, err = systemAddresses(); err != nil {
			return
		}
		if err = loopbackUp(); err == nil {
			after, err = systemAddresses()
		}
	})
	require.NoError(t, err)
	require.Empty(t, before)
	require.NotEmpty(t, after)
	require.Equal(t, "lo", after[0].Interface)

	hints, ended := make(chan struct{}, 16), make(chan error, 1)
	go func() {
		for {
			if err := source.Wait(); err != nil {
				ended <- err
				return
			}
			hints <- struct{}{}
		}
	}()
	select {
	case <-hints:
	case <-time.After(10 * time.Second):
		t.Error("nothing told")
	}
	require.NoError(t, source.Close())
	select {
	case err := <-ended:
		require.ErrorIs(t, err, os.ErrClosed)
	case <-time.After(10 * time.Second):
		t.Fatal("still waiting")
	}
}
