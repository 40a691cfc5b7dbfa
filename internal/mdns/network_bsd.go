// SPDX-License-Identifier: Apache-2.0

//go:build !windows && !linux

package mdns

import (
	"errors"

	"golang.org/x/sys/unix"
)

// reuse lets several programs have the port, which takes both options here.
func reuse(fd int) error {
	return errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
}

// onlyJoined has nothing to do: a socket hears the groups that it has joined.
func onlyJoined(int) error { return nil }
