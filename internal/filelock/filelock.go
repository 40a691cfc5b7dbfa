// SPDX-License-Identifier: Apache-2.0

// Package filelock makes sure that one process at a time does a job, by a
// kernel lock on a file.
//
// It guarantees that of any number of processes exactly one holds the lock, and
// that the lock ends with its holder, however that dies: the kernel drops it,
// no child inherits it. So there are no stale locks, and no lock file is ever
// removed, by age, by pid or otherwise. The file's content says who holds the
// lock; it serves messages only and decides nothing.
//
// There is no queue: of those who wait any may be next.
package filelock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	pollEvery = 50 * time.Millisecond

	// A try is repeated this often before it counts, because Holder takes the
	// lock for an instant to test it.
	triesPerTry = 4
	tryPause    = 2 * time.Millisecond

	maxInfoBytes = 4 << 10
)

// Info is what a holder tells about itself.
type Info struct {
	PID       int    `json:"pid"`
	StartTime string `json:"startTime"` // in the holder's own format, for people
	Kind      string `json:"kind"`      // what the process is
	Version   string `json:"version"`
}

// HeldError says that another holder has the lock. Info is zero if the holder
// has not written it yet.
type HeldError struct {
	Path string
	Info Info
}

func (e *HeldError) Error() string {
	if e.Info == (Info{}) {
		return e.Path + " is locked by another process"
	}
	return fmt.Sprintf("%s is locked by %s, pid %d, since %s", e.Path, e.Info.Kind, e.Info.PID, e.Info.StartTime)
}

// Lock is a held lock. Whoever has it must keep it and call Release: a Lock that
// nothing refers to any more is closed by the garbage collector, and free.
type Lock struct{ f *os.File }

// errReplaced means that the path names another file than the one just locked.
var errReplaced = errors.New("the lock file was replaced meanwhile")

// Acquire takes the lock at path and writes info into the file. While another
// holds it, in this process or elsewhere, it asks again every 50 ms until ctx
// ends and then returns a *HeldError; with a ctx that has ended already it just
// tries.
//
// The file is created if need be, mode 0600, its directory 0700. A file that is
// a link, not regular, another user's or has more than one link is refused with
// an *atomicfile.UnsafeError and left as it is (PO-31). That the system cannot
// lock is an error, never "free".
func Acquire(ctx context.Context, path string, info Info) (*Lock, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of lock %s: %w", path, err)
	}
	for {
		l, err := try(path, info)
		var held *HeldError
		if !errors.As(err, &held) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pollEvery):
		}
	}
}

// try takes the lock if it is free, give or take a test by Holder.
func try(path string, info Info) (*Lock, error) {
	for n := 1; ; n++ {
		l, err := tryOnce(path, info)
		var held *HeldError
		again := errors.As(err, &held) || errors.Is(err, errReplaced)
		if !again || n == triesPerTry {
			return l, err
		}
		<-time.After(tryPause) // bounded by triesPerTry, also for a ctx that has ended
	}
}

func tryOnce(path string, info Info) (*Lock, error) {
	f, err := openFile(path, true)
	if err != nil {
		return nil, err
	}
	ok, err := lock(f, true)
	switch {
	case err != nil:
		err = fmt.Errorf("lock %s: %w", path, err)
	case !ok:
		err = &HeldError{path, readInfo(f)}
	case !same(f, path):
		// Somebody removed the file between the open and the lock. A lock on a
		// file without a name would exclude nobody.
		err = fmt.Errorf("lock %s: %w", path, errReplaced)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	writeInfo(f, info)
	return &Lock{f}, nil
}

// Release gives the lock up. The file and its content stay. A second call
// returns an error that is os.ErrClosed.
func (l *Lock) Release() error {
	// Unlocked first: a child that another goroutine is about to start has a
	// copy of the descriptor until its exec, and with it the lock.
	return errors.Join(unlock(l.f), l.f.Close())
}

// Holder tells who holds the lock at path, which it takes, shared, for no
// longer than the test itself. With held false info is zero, also if the file
// does not exist. With held true info may be zero too, if the holder is just
// about to write it. Files that Acquire refuses are refused, none is changed.
func Holder(path string) (info Info, held bool, err error) {
	f, err := openFile(path, false)
	if errors.Is(err, fs.ErrNotExist) {
		return Info{}, false, nil
	}
	if err != nil {
		return Info{}, false, err
	}
	defer f.Close()

	// Shared, so that two who ask at once do not take each other for a holder.
	ok, err := lock(f, false)
	if err != nil {
		return Info{}, false, fmt.Errorf("test lock %s: %w", path, err)
	}
	if ok {
		return Info{}, false, unlock(f)
	}
	return readInfo(f), true, nil
}

// same reports whether path still names the open file.
func same(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b)
}

// readInfo returns the file's content, or zero if it is none of ours.
func readInfo(f *os.File) Info {
	data, err := io.ReadAll(io.NewSectionReader(f, 0, maxInfoBytes))
	var info Info
	if err != nil || json.Unmarshal(data, &info) != nil {
		return Info{}
	}
	return info
}

// writeInfo does its best: content that is missing or old, for want of space,
// costs a message its detail, not us the lock (PO-33).
func writeInfo(f *os.File, info Info) {
	data, err := json.Marshal(info)
	if err == nil && f.Truncate(0) == nil {
		_, _ = f.WriteAt(append(data, '\n'), 0)
	}
}
