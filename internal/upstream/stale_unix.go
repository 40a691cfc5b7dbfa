// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package upstream

import (
	"errors"
	"net"
	"syscall"
)

// closedByPeer reports whether an idle connection has ended, or holds bytes that
// nobody asked for. It costs one system call and waits for nothing.
func closedByPeer(nc net.Conn) bool {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return false
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return true
	}
	var readErr error
	err = rc.Control(func(fd uintptr) {
		var b [1]byte
		_, _, readErr = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})
	// Nothing to read is what an idle connection should have.
	return err != nil || !errors.Is(readErr, syscall.EAGAIN)
}
