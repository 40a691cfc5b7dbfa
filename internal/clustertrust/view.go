// SPDX-License-Identifier: Apache-2.0

package clustertrust

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"nvpair/internal/atomicfile"
)

// Bounds of what is read.
const (
	maxFileBytes = 256 << 10
	maxPins      = 1024
)

// settle is how old a change must be before the same stamp means the same content:
// file systems tell times in ticks, in which a file can change twice.
const settle = 2 * time.Second

// recheck is how often something is read again whose stamp does not vouch for its
// content: it could not be read, its time is ahead of the clock, or it is not settled.
// What was younger than this when it was read is read again at the next look.
const recheck = 100 * time.Millisecond

var errNotRegular = errors.New("it is not a regular file; move it away")

// View looks at one cluster directory. It is safe for concurrent use. A nil View is
// that of a node that is never a member (SEC-T13).
type View struct {
	dir string
	log *slog.Logger

	mu       sync.Mutex // guards the rest; held over the reading of small local files
	state    *State
	readings map[string]reading // by name in the directory
	pins     map[string]pin     // all that are known of, by uuid
	pinsDue  time.Time          // when many of them are looked at again
	warnings map[string]bool    // what was said of files that are wrong, once each
}

// stamp tells one content of a file or directory from the next.
type stamp struct {
	modified time.Time
	size     int64
	exists   bool
	unknown  bool // it could not be looked at
}

// reading is a look into a file or directory. The zero one holds for nothing.
type reading struct {
	stamp   stamp
	settled bool      // the same stamp means the same content
	until   time.Time // else it is taken to mean that until then; zero is not at all
}

// holds reports whether the reading is as good as another one.
func (r reading) holds(at stamp, now time.Time) bool {
	return r.stamp == at && (r.settled || now.Before(r.until))
}

// newReading says of a reading with such a stamp, which failed or not, how long it holds.
func newReading(s stamp, now time.Time, failed bool) reading {
	age := now.Sub(s.modified)
	switch {
	case s.exists && age >= 0 && age < recheck:
		return reading{stamp: s}
	case failed || s.unknown || s.exists && age <= settle:
		return reading{stamp: s, until: now.Add(recheck)}
	}
	return reading{stamp: s, settled: true}
}

// Open returns a view of a directory, which need not exist. An empty dir is that of
// a node that is never a member.
func Open(dir string, log *slog.Logger) *View {
	v := &View{dir: dir, log: log, state: &State{}, readings: make(map[string]reading), pins: make(map[string]pin),
		warnings: make(map[string]bool)}
	v.Refresh()
	return v
}

// State returns what the last look found; never nil.
func (v *View) State() *State {
	if v == nil {
		return &State{}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.state
}

// Refresh looks again and returns what there is now: the same *State as before if
// nothing changed. Without a change it costs five calls of stat and one a pin; of many
// pins, one that is written in place, and not replaced, is noticed within 100 ms.
//
// Only what is there, or what is not, changes what was known. Whatever cannot be read
// keeps it, see State.Unsure.
func (v *View) Refresh() *State {
	if v == nil {
		return &State{}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.dir == "" {
		return v.state
	}
	next := *v.state
	changed := false
	for _, part := range []struct {
		name  string
		look  func(string) (fs.FileInfo, error)
		read  func(*State) error
		doubt *bool // whether the last reading failed
	}{
		{"node.crt", os.Stat, v.readIdentityLocked, &next.doubts.leaf},
		{"node.key", os.Stat, v.readIdentityLocked, &next.doubts.leaf},
		{"admission.json", os.Stat, v.readAdmissionLocked, &next.doubts.admission},
		{"teardown.pending", os.Lstat, v.readTeardownLocked, &next.doubts.leaving}, // a link that leads nowhere is one, too
		{"trusted", os.Stat, v.listPinsLocked, &next.doubts.list},
	} {
		at, now := v.stamp(part.name, part.look)
		if v.readings[part.name].holds(at, now) {
			continue
		}
		err := part.read(&next)
		if err != nil {
			v.complainLocked(part.name, err)
		}
		*part.doubt = err != nil
		v.readings[part.name] = newReading(at, now, err != nil)
		changed = true
	}
	if !v.readPinsLocked(changed) && !changed {
		return v.state
	}
	v.takePinsLocked(&next)
	if !next.equal(v.state) {
		v.state = &next
	}
	return v.state
}

// stamp is taken before the reading: a change in between is seen by the next look.
func (v *View) stamp(name string, look func(string) (fs.FileInfo, error)) (at stamp, now time.Time) {
	info, err := look(filepath.Join(v.dir, name))
	now = time.Now()
	if err != nil {
		return stamp{unknown: !errors.Is(err, fs.ErrNotExist)}, now
	}
	return stamp{modified: info.ModTime(), size: info.Size(), exists: true}, now
}

// complainLocked says what is wrong with a file, once.
func (v *View) complainLocked(name string, err error) {
	text := name + ": " + err.Error()
	if !v.warnings[text] && len(v.warnings) < maxPins {
		v.warnings[text] = true
		v.log.Warn("cluster directory: ignored what cannot be used", "path", filepath.Join(v.dir, name), "err", err)
	}
}

func (v *View) read(name string) ([]byte, error) {
	return atomicfile.Read(filepath.Join(v.dir, name), maxFileBytes)
}

// readPublic reads a file that others may read, and leaves its mode alone.
func (v *View) readPublic(name string) ([]byte, error) {
	f, err := os.OpenFile(filepath.Join(v.dir, name), os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	return io.ReadAll(io.LimitReader(f, maxFileBytes))
}

// readIdentityLocked takes a key pair. One that is loaded stays until another one
// parses (SEC-T12).
func (v *View) readIdentityLocked(s *State) error {
	certPEM, err := v.readPublic("node.crt")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	keyPEM, err := v.read("node.key")
	if err != nil {
		return err
	}
	leaf, err := keyPair(certPEM, keyPEM)
	if err == nil {
		s.leaf = leaf
	}
	return err
}

// readAdmissionLocked: what is read and is no admission is none (SEC-T10).
func (v *View) readAdmissionLocked(s *State) error {
	raw, err := v.read("admission.json")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.ClusterID, s.Epoch = "", 0
	if err != nil {
		return nil
	}
	var a struct {
		ClusterID string `json:"clusterId"`
		Epoch     uint64 `json:"epoch"`
	}
	if err := json.Unmarshal(raw, &a); err != nil {
		return err
	}
	if a.ClusterID != "" && a.Epoch != 0 {
		s.ClusterID, s.Epoch = a.ClusterID, a.Epoch
	}
	return nil
}

// readTeardownLocked only looks whether a journal is there, of whatever kind (DEC-73).
func (v *View) readTeardownLocked(s *State) error {
	_, err := os.Lstat(filepath.Join(v.dir, "teardown.pending"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.leaving = err == nil
	return nil
}
