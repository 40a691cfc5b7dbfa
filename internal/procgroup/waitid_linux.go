// SPDX-License-Identifier: Apache-2.0

package procgroup

import "golang.org/x/sys/unix"

// waitid blocks until the child has exited and leaves it a zombie.
func waitid(pid int) error {
	return unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
}
