// SPDX-License-Identifier: Apache-2.0

package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"

	"nvpair/internal/atomicfile"
)

// lockOffsetHigh is where the locked byte lies, in units of 4 GiB. A lock on
// Windows bars others from reading what it covers, so it must not cover the
// content.
const lockOffsetHigh = 0x7fffffff

// openFile opens the lock file, not what it may link to, and checks it (PO-31).
// To take the lock it also creates the file. There is no mode to fix: the access
// list of the per-user directory is the protection (PO-61).
func openFile(path string, take bool) (*os.File, error) {
	path16, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return nil, &fs.PathError{Op: "open lock", Path: path, Err: err}
	}
	access, disposition := uint32(windows.GENERIC_READ), uint32(windows.OPEN_EXISTING)
	if take {
		access, disposition = windows.GENERIC_READ|windows.GENERIC_WRITE, windows.OPEN_ALWAYS
	}
	// No security attributes: no child inherits the handle. Deleting is not
	// shared: an open lock file keeps its name.
	h, err := windows.CreateFile(path16, access, windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE,
		nil, disposition, windows.FILE_FLAG_OPEN_REPARSE_POINT|windows.FILE_FLAG_BACKUP_SEMANTICS, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open lock", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(h), path)
	if err := check(h, path); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func check(h windows.Handle, path string) error {
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(h, &info); err != nil {
		return fmt.Errorf("inspect lock %s: %w", path, err)
	}
	reason := ""
	switch {
	case info.FileAttributes&windows.FILE_ATTRIBUTE_REPARSE_POINT != 0:
		reason = "is a link; remove it"
	case info.FileAttributes&windows.FILE_ATTRIBUTE_DIRECTORY != 0:
		reason = "is not a regular file; move it away"
	case info.NumberOfLinks != 1:
		reason = fmt.Sprintf("has %d hard links instead of one; remove the others", info.NumberOfLinks)
	default:
		return nil
	}
	return &atomicfile.UnsafeError{Path: path, Reason: reason}
}

// lock takes the lock without waiting; false means that another has it.
func lock(f *os.File, exclusive bool) (bool, error) {
	flags := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if exclusive {
		flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &windows.Overlapped{OffsetHigh: lockOffsetHigh})
	for _, held := range []error{windows.ERROR_LOCK_VIOLATION, windows.ERROR_IO_PENDING,
		windows.ERROR_SHARING_VIOLATION, windows.ERROR_ACCESS_DENIED, windows.ERROR_BUSY} {
		if errors.Is(err, held) {
			return false, nil // PO-32: file systems say it in different words
		}
	}
	return err == nil, err
}

func unlock(f *os.File) error {
	c, err := f.SyscallConn() // unlike Fd, says so if the file is closed
	if err != nil {
		return err
	}
	cerr := c.Control(func(fd uintptr) {
		err = windows.UnlockFileEx(windows.Handle(fd), 0, 1, 0, &windows.Overlapped{OffsetHigh: lockOffsetHigh})
	})
	if cerr != nil {
		return cerr
	}
	return err
}
