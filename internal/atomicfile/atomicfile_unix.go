// SPDX-License-Identifier: Apache-2.0

//go:build unix

package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// replace writes data beside path and renames it over path.
func replace(path string, data []byte) error {
	dir := filepath.Dir(path)
	// Static: neither the umask nor the mode of the old file has a say. The
	// directory must be named, or renameio tries the system's first.
	t, err := renameio.NewPendingFile(path, renameio.WithTempDir(dir), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer t.Cleanup() // nothing to do after the rename
	if _, err := t.Write(data); err != nil {
		return err
	}
	if err := t.CloseAtomicallyReplace(); err != nil {
		return err
	}
	// renameio syncs the file only; without this the rename itself can be lost.
	if err := syncDir(dir); err != nil {
		return fmt.Errorf("%w: %w", errNotDurable, err)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	err = d.Sync()
	// Some network and user-space file systems cannot sync a directory at all.
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}

// openDir opens a directory and checks it. Links on the way are followed: a
// data directory may be linked to another disk; what counts is where it ends.
func openDir(dir string) (*os.File, error) {
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	fi, err := d.Stat()
	if err == nil {
		err = checkOwnerAndWriters(dir, fi)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

func checkDir(dir string) error {
	d, err := openDir(dir)
	if err != nil {
		return err
	}
	return d.Close()
}

// openChecked opens path for reading and checks what it opened, relative to the
// directory it has checked, so that nothing can be exchanged in between.
func openChecked(path string) (*os.File, error) {
	d, err := openDir(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notExist(path)
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()

	// Not blocking: a named pipe would wait for a writer before it is refused.
	flags := unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := openat(int(d.Fd()), filepath.Base(path), flags)
	switch err {
	case nil:
	case unix.ENOENT:
		return nil, notExist(path)
	case unix.ELOOP:
		return nil, &UnsafeError{path, "is a link; replace it by the file itself"}
	case unix.ENXIO, unix.EOPNOTSUPP: // a socket
		return nil, &UnsafeError{path, notRegular}
	default:
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	if err := checkFile(f, path); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func openat(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

const notRegular = "is not a regular file; move it away"

// checkFile checks an open file and tightens its mode.
func checkFile(f *os.File, path string) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return &UnsafeError{path, notRegular}
	}
	if err := checkOwnerAndWriters(path, fi); err != nil {
		return err
	}
	// No link at all is a file that was replaced since we opened it: whole, and
	// as good as an instant ago (PO-75).
	if n := fi.Sys().(*syscall.Stat_t).Nlink; n > 1 {
		return &UnsafeError{path, fmt.Sprintf("has %d hard links; remove the others or replace it by a copy", n)}
	}
	if fi.Mode().Perm()&0o077 != 0 {
		_ = f.Chmod(0o600)
	}
	return nil
}

func checkOwnerAndWriters(path string, fi fs.FileInfo) error {
	if !ownedByUs(fi) {
		return &UnsafeError{path, fmt.Sprintf("belongs to user %d and not to %d, who runs this; change its owner",
			fi.Sys().(*syscall.Stat_t).Uid, os.Geteuid())}
	}
	if fi.Mode().Perm()&0o022 != 0 {
		return &UnsafeError{path, "can be written by group or others; check its content, then run chmod go-w on it"}
	}
	return nil
}

func ownedByUs(fi fs.FileInfo) bool {
	return fi.Sys().(*syscall.Stat_t).Uid == uint32(os.Geteuid())
}
