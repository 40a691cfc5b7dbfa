// SPDX-License-Identifier: Apache-2.0

package netwatch

import (
	"errors"

	"golang.org/x/sys/unix"
)

// openSocket subscribes to the changes of links and addresses, as rtnetlink(7) has
// it. Nothing is asked and nothing decoded, for which no library is needed.
func openSocket() (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return 0, err
	}
	groups := &unix.SockaddrNetlink{
		Family: unix.AF_NETLINK,
		Groups: unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR,
	}
	if err := unix.Bind(fd, groups); err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// concerns holds for all that was subscribed to.
func concerns([]byte) bool { return true }
