// SPDX-License-Identifier: Apache-2.0

//go:build unix

package filelock

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"nvpair/internal/atomicfile"
)

const notRegular = "is not a regular file; move it away"

// openFile opens the lock file and checks it (PO-31). To take the lock it also
// creates the file and fixes its mode; to look only it does neither.
func openFile(path string, take bool) (*os.File, error) {
	// Not blocking, or a named pipe would wait for its other end.
	flags := unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	if take {
		flags |= unix.O_RDWR | unix.O_CREAT // network file systems lock exclusively only what can be written
	} else {
		flags |= unix.O_RDONLY
	}
	fd, err := open(path, flags)
	switch err {
	case nil:
	case unix.ELOOP:
		return nil, &atomicfile.UnsafeError{Path: path, Reason: "is a link; remove it"}
	case unix.EISDIR, unix.ENXIO, unix.EOPNOTSUPP: // the last two are a socket
		return nil, &atomicfile.UnsafeError{Path: path, Reason: notRegular}
	default:
		return nil, &fs.PathError{Op: "open lock", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	if err := check(f, path, take); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func open(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags, 0o600)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

func check(f *os.File, path string, fixMode bool) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	st := fi.Sys().(*syscall.Stat_t)
	switch {
	case !fi.Mode().IsRegular():
		return &atomicfile.UnsafeError{Path: path, Reason: notRegular}
	case st.Uid != uint32(os.Geteuid()):
		return &atomicfile.UnsafeError{Path: path, Reason: fmt.Sprintf(
			"belongs to user %d and not to %d, who runs this; change its owner", st.Uid, os.Geteuid())}
	case st.Nlink != 1:
		return &atomicfile.UnsafeError{Path: path, Reason: fmt.Sprintf(
			"has %d hard links instead of one; remove the others", st.Nlink)}
	case fixMode && fi.Mode() != 0o600:
		if err := f.Chmod(0o600); err != nil {
			return fmt.Errorf("set the mode of lock %s: %w", path, err)
		}
	}
	return nil
}

// lock takes the lock without waiting; false means that another has it.
func lock(f *os.File, exclusive bool) (bool, error) {
	how := unix.LOCK_SH | unix.LOCK_NB
	if exclusive {
		how = unix.LOCK_EX | unix.LOCK_NB
	}
	for {
		err := unix.Flock(int(f.Fd()), how)
		switch err {
		case nil:
			return true, nil
		case unix.EINTR:
			continue
		case unix.EWOULDBLOCK, unix.EACCES, unix.EBUSY:
			return false, nil // PO-32: file systems say it in different words
		}
		return false, err
	}
}

func unlock(f *os.File) error {
	c, err := f.SyscallConn() // unlike Fd, says so if the file is closed
	if err != nil {
		return err
	}
	if cerr := c.Control(func(fd uintptr) { err = unix.Flock(int(fd), unix.LOCK_UN) }); cerr != nil {
		return cerr
	}
	return err
}
