// SPDX-License-Identifier: Apache-2.0

// Package atomicfile reads and replaces small files that must be whole and
// private: settings, keys, ledgers.
//
// It guarantees that a file is at all times wholly old or wholly new, also
// after a crash or a power cut, and that nothing is read which another user
// could have written or slipped in. It repairs nothing but a mode that is too
// open for reading: what it refuses stays as it is, for a person to look at.
//
// Different processes may read and write one file at once; the last writer
// wins. On Windows the access list of the user's directory takes the place of
// owner and mode (PO-61); links are refused there too.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// UnsafeError says that a file or directory was refused for one of its
// properties. Its content was not looked at.
type UnsafeError struct {
	Path   string
	Reason string // the property and what to do about it
}

func (e *UnsafeError) Error() string { return e.Path + " " + e.Reason }

// errNotDurable is a failure after the rename: the new file is in place, but may be
// lost in a power cut.
var errNotDurable = errors.New("the new content is in place but may not survive a power cut")

// Write replaces the file at path with data, mode 0600, and returns when it is
// on disk (PO-53). A missing directory is created with mode 0700; one that Read
// would refuse is refused here already. A link at path is replaced, not
// followed. On an error the old file is intact and no temporary file is left,
// except that a failure of the last step, the sync of the directory, leaves the
// new content in place and says so.
func Write(path string, data []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the directory of %s: %w", path, err)
	}
	if err := checkDir(dir); err != nil {
		return err
	}
	err := replace(path, data)
	switch {
	case errors.Is(err, errNotDurable):
		return fmt.Errorf("write %s: %w; check the disk", path, err)
	case err != nil:
		return fmt.Errorf("write %s: %w; the old file is unchanged, check free space and permissions", path, err)
	}
	return nil
}

// Read returns the content of the file at path (PO-50). It refuses, with an
// *UnsafeError: a directory or file of another user or that group or others can
// write; a link at the last element; anything but a regular file; a file with a
// second hard link; more than maxBytes. A missing file or directory is an error
// that is fs.ErrNotExist.
//
// A file that others can merely read is tightened to 0600 (PO-51); if that
// fails it is read all the same, for the leak is not made worse by reading.
func Read(path string, maxBytes int64) ([]byte, error) {
	f, err := openChecked(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	// Reading on decides, not the size in the directory: the file may still grow.
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if int64(len(data)) > maxBytes {
		return nil, &UnsafeError{path, fmt.Sprintf("is larger than %d bytes; move it away or restore it", maxBytes)}
	}
	return data, nil
}

// RemoveLeftovers removes temporary files that earlier writers of path left as
// they died: those beside it that have our name pattern, are regular and ours.
// It cannot tell a dead writer from a live one, so only the one process that
// writes path calls it, before its first Write. Problems are ignored; a
// leftover does no harm.
func RemoveLeftovers(path string) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return
	}
	for _, e := range entries {
		if !isTempName(e.Name(), filepath.Base(path)) {
			continue
		}
		if fi, err := e.Info(); err == nil && fi.Mode().IsRegular() && ownedByUs(fi) {
			_ = os.Remove(filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
}

// isTempName reports whether name is one of the temporary names for base: a
// dot, base, and a decimal number. renameio and os.CreateTemp share that form.
func isTempName(name, base string) bool {
	number, ok := strings.CutPrefix(name, "."+base)
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// notExist keeps a missing file recognizable and names the whole path.
func notExist(path string) error {
	return &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
}
