// SPDX-License-Identifier: Apache-2.0

package appdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Timing of the migration lock (WR-65).
const (
	migrateWait  = 10 * time.Second
	migratePoll  = 100 * time.Millisecond
	migrateStale = 2 * time.Minute
)

// neverMoved is an entry of former directories that belongs to the programs,
// not to the data.
const neverMoved = "bin"

// ErrMigrationBusy means that another process holds the migration lock.
// Nothing was moved.
var ErrMigrationBusy = errors.New("another process is moving the data directory")

// Report tells what Migrate did. The paths are absolute and in the order of the
// moves; a directory that was moved whole is one path.
type Report struct {
	Moved []string // where they are now
	Kept  []string // where they still are: the new place has its own, or the move failed
}

// Migrate moves the data of former releases into the data directory, entry by
// entry. An existing file is never replaced: the former copy stays where it is
// and is reported. With NVPAIR_DATA_DIR set it does nothing (DEC-61).
//
// It runs once a process, before anything else uses the directory, and waits up
// to 10 s for another process that is at it. An error is a reason for a
// warning, not for giving up; the report is valid with it.
func Migrate() (Report, error) {
	var m migration
	if os.Getenv(envDataDir) != "" {
		return m.report, nil
	}
	base, err := baseDir()
	if err != nil {
		return m.report, err
	}
	dst := current().under(base)
	var sources []string
	for _, p := range previous() {
		if src := p.under(base); isSource(src, dst) {
			sources = append(sources, src)
		}
	}
	if len(sources) == 0 {
		return m.report, nil // the usual case: no lock, no directory
	}

	unlock, err := lockMigration(base)
	if err != nil {
		return m.report, err
	}
	defer unlock()
	if err := os.MkdirAll(dst, 0o700); err != nil {
		return m.report, fmt.Errorf("create the data directory: %w", err)
	}
	for _, src := range sources {
		m.merge(src, dst, true)
	}
	return m.report, errors.Join(m.errs...)
}

// isSource reports whether src is a directory to be emptied. A link is none:
// somebody made it, most likely to dst.
func isSource(src, dst string) bool {
	fi, err := os.Lstat(src)
	if err != nil || !fi.IsDir() {
		return false
	}
	d, err := os.Stat(dst) // names that differ in case only may be one directory
	return err != nil || !os.SameFile(fi, d)
}

// migration collects the outcome of one run.
type migration struct {
	report Report
	errs   []error
}

// merge moves the entries of src into dst, both of which are directories, and
// removes src if that empties it (WR-66).
func (m *migration) merge(src, dst string, top bool) {
	entries, err := os.ReadDir(src)
	if err != nil {
		m.keep(src, err)
		return
	}
	for _, e := range entries {
		if top && e.Name() == neverMoved {
			continue
		}
		m.move(filepath.Join(src, e.Name()), filepath.Join(dst, e.Name()), e.IsDir())
	}
	_ = os.Remove(src) // fails if something was kept
}

// move moves one entry, or merges it if dst is there. Types are those of the
// entries themselves: links are moved, never followed.
func (m *migration) move(src, dst string, isDir bool) {
	fi, err := os.Lstat(dst)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.Rename(src, dst); err != nil {
			m.keep(src, err)
			return
		}
		m.report.Moved = append(m.report.Moved, dst)
	case err != nil:
		m.keep(src, err)
	case isDir && fi.IsDir():
		m.merge(src, dst, false)
	default:
		m.keep(src, nil) // the newer place wins
	}
}

// keep reports what stays, and why if that is a failure.
func (m *migration) keep(src string, err error) {
	m.report.Kept = append(m.report.Kept, src)
	if err != nil {
		m.errs = append(m.errs, fmt.Errorf("move %s: %w", src, err))
	}
}

// lockMigration creates the lock file and returns what removes it. Other
// programs know this file, so it is not a kernel lock. Two that find the same
// stale lock may both get in: a rename moves an entry only once, so that does
// no harm.
func lockMigration(base string) (unlock func(), err error) {
	path := filepath.Join(base, Organisation, ".nvpair-data-migration.lock")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("create the data directory: %w", err)
	}
	for begin := time.Now(); ; {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			mine, err := f.Stat()
			return func() { removeLock(path, mine) }, errors.Join(err, f.Close())
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("lock the move of the data directory: %w", err)
		}
		fi, err := os.Lstat(path)
		if err == nil && time.Since(fi.ModTime()) > migrateStale {
			removeLock(path, fi)
			if there, _ := exists(path); !there {
				continue
			}
		}
		if time.Since(begin) >= migrateWait {
			return nil, fmt.Errorf("%w: %s exists; delete it if nothing runs", ErrMigrationBusy, path)
		}
		<-time.After(migratePoll) // bounded by migrateWait, and nothing runs yet that could cancel it
	}
}

// removeLock removes the lock file unless it is another one by now.
func removeLock(path string, known fs.FileInfo) {
	if fi, err := os.Lstat(path); err == nil && os.SameFile(fi, known) {
		_ = os.Remove(path)
	}
}
