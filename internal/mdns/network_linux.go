// SPDX-License-Identifier: Apache-2.0

package mdns

import "golang.org/x/sys/unix"

// reuse lets several programs have the port. Address reuse does on Linux, for all
// users; with port reuse the kernel would share packets out.
func reuse(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) }

// onlyJoined keeps out what arrives on interfaces that other programs have joined the group on.
func onlyJoined(fd int) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0)
}
