// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/windows"
)

// Budget of the rename: a virus scanner or an indexer may hold either file for
// a moment (PO-61).
const (
	renameTries = 10
	renamePause = 50 * time.Millisecond // times the attempt
)

// replace writes data beside path and moves it over path.
func replace(path string, data []byte) error {
	// Its names are a prefix and a decimal number, as isTempName expects.
	t, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path))
	if err != nil {
		return err
	}
	_, err = t.Write(data)
	if err == nil {
		err = t.Sync()
	}
	if cerr := t.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = moveOver(t.Name(), path)
	}
	if err != nil {
		_ = os.Remove(t.Name())
	}
	return err
}

// moveOver blocks for up to 2.3 s while another program holds a file. Windows
// has no sync of a directory; write-through makes the move itself durable.
func moveOver(from, to string) error {
	from16, err := windows.UTF16PtrFromString(from)
	if err != nil {
		return err
	}
	to16, err := windows.UTF16PtrFromString(to)
	if err != nil {
		return err
	}
	for n := 1; ; n++ {
		err := windows.MoveFileEx(from16, to16, windows.MOVEFILE_REPLACE_EXISTING|windows.MOVEFILE_WRITE_THROUGH)
		held := errors.Is(err, windows.ERROR_SHARING_VIOLATION) || errors.Is(err, windows.ERROR_ACCESS_DENIED)
		if !held || n == renameTries {
			return err
		}
		<-time.After(time.Duration(n) * renamePause) // bounded by renameTries
	}
}

// checkDir has nothing to check: the access list of the per-user directory is
// the protection (PO-61).
func checkDir(string) error { return nil }

func ownedByUs(fs.FileInfo) bool { return true }

// openChecked opens path itself, not what it may link to, and checks that.
func openChecked(path string) (*os.File, error) {
	path16, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	// Sharing everything keeps readers from blocking a writer's move.
	h, err := windows.CreateFile(path16, windows.GENERIC_READ,
		windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE|windows.FILE_SHARE_DELETE, nil, windows.OPEN_EXISTING,
		// Backup semantics open directories too, so that they get our reason.
		windows.FILE_FLAG_OPEN_REPARSE_POINT|windows.FILE_FLAG_BACKUP_SEMANTICS, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notExist(path)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	f := os.NewFile(uintptr(h), path)
	if err := checkHandle(h, path); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func checkHandle(h windows.Handle, path string) error {
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(h, &info); err != nil {
		return fmt.Errorf("inspect %s: %w", path, err)
	}
	switch {
	case info.FileAttributes&windows.FILE_ATTRIBUTE_REPARSE_POINT != 0:
		return &UnsafeError{path, "is a link; replace it by the file itself"}
	case info.FileAttributes&windows.FILE_ATTRIBUTE_DIRECTORY != 0:
		return &UnsafeError{path, "is not a regular file; move it away"}
	case info.NumberOfLinks > 1:
		return &UnsafeError{path, fmt.Sprintf("has %d hard links; remove the others or replace it by a copy", info.NumberOfLinks)}
	}
	return nil
}
