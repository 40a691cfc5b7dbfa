// SPDX-License-Identifier: Apache-2.0

//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package netwatch

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// openSocket opens a routing socket, as route(4) has it.
func openSocket() (int, error) {
	syscall.ForkLock.RLock() // no child process inherits it
	defer syscall.ForkLock.RUnlock()
	fd, err := unix.Socket(unix.AF_ROUTE, unix.SOCK_RAW, unix.AF_UNSPEC)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	return fd, err
}

// concerns leaves out the many messages about routes. The type is the fourth byte of
// a message on all these systems.
func concerns(message []byte) bool {
	if len(message) < 4 {
		return false
	}
	switch message[3] {
	case unix.RTM_NEWADDR, unix.RTM_DELADDR, unix.RTM_IFINFO:
		return true
	}
	return false
}
