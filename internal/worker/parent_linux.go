// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"os"

	"golang.org/x/sys/unix"
)

// parentWaiter waits on a pidfd in the runtime's poller, which costs nothing
// while the parent lives, or polls on kernels without one.
func parentWaiter(parent int) (wait func(quit <-chan struct{}) bool, abort func()) {
	poll := func(quit <-chan struct{}) bool { return pollParent(parent, quit) }
	fd, err := unix.PidfdOpen(parent, unix.PIDFD_NONBLOCK)
	if err != nil {
		return poll, func() {}
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	wait = func(quit <-chan struct{}) bool {
		conn, err := f.SyscallConn()
		if err == nil {
			err = conn.Read(func(uintptr) bool { return os.Getppid() != parent || dead(fd) })
		}
		select {
		case <-quit:
			return false
		default:
		}
		if err != nil {
			return poll(quit)
		}
		return true
	}
	return wait, func() { _ = f.Close() }
}

// dead reports whether the pidfd is readable: its process has ended.
func dead(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}
