// SPDX-License-Identifier: Apache-2.0

//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package procgroup

import "golang.org/x/sys/unix"

// waitid blocks until the child has exited and leaves it a zombie. These
// systems have no portable waitid in x/sys, but a kqueue reports the exit.
func waitid(pid int) error {
	kq, err := unix.Kqueue()
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(kq) }()
	var change unix.Kevent_t
	unix.SetKevent(&change, pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	change.Fflags = unix.NOTE_EXIT
	events := make([]unix.Kevent_t, 1)
	_, err = unix.Kevent(kq, []unix.Kevent_t{change}, events, nil)
	return err // ESRCH: it has exited already
}
