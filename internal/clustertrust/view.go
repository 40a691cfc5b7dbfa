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

// View looks at one cluster directory. It is safe for concurrent use. A nil View is
// that of a node that is never a member (SEC-T13).
type View struct {
	dir string
	log *slog.Logger

	mu       sync.Mutex // guards the rest; held over the reading of small local files
	state    *State
	stamps   map[string]stamp // of what was read, by name in the directory
	warnings map[string]bool  // what was said of files that are wrong, once each
}

// stamp tells one content of a file or directory from the next.
type stamp struct {
	modified time.Time
	size     int64
	exists   bool
	settled  bool // it was old enough when it was read
}

// Open returns a view of a directory, which need not exist. An empty dir is that of
// a node that is never a member.
func Open(dir string, log *slog.Logger) *View {
	v := &View{dir: dir, log: log, state: &State{}, stamps: make(map[string]stamp), warnings: make(map[string]bool)}
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
// nothing changed. Without a change it costs five calls of stat.
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
		name string
		read func(*State) error
	}{
		{"node.crt", v.readIdentityLocked}, {"node.key", v.readIdentityLocked}, {"admission.json", v.readAdmissionLocked},
		{"teardown.pending", v.readTeardownLocked}, {"trusted", v.readPinsLocked},
	} {
		now := v.stamp(part.name)
		if before, read := v.stamps[part.name]; read && now == before && now.settled {
			continue
		}
		if err := part.read(&next); err != nil {
			v.complainLocked(part.name, err)
			now.settled = false // it may be mended without another stamp
		}
		v.stamps[part.name] = now
		changed = true
	}
	if changed && !next.equal(v.state) {
		v.state = &next
	}
	return v.state
}

// stamp is taken before the reading: a change in between is seen by the next look.
func (v *View) stamp(name string) stamp {
	info, err := os.Stat(filepath.Join(v.dir, name))
	if err != nil {
		return stamp{settled: errors.Is(err, fs.ErrNotExist)}
	}
	return stamp{info.ModTime(), info.Size(), true, time.Since(info.ModTime()) > settle}
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
	f, err := os.Open(filepath.Join(v.dir, name))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
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

// readAdmissionLocked: whatever is no admission is none (SEC-T10).
func (v *View) readAdmissionLocked(s *State) error {
	s.ClusterID, s.Epoch = "", 0
	raw, err := v.read("admission.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
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

// readTeardownLocked only looks whether a journal is there: what cannot be looked at
// counts as one (DEC-73).
func (v *View) readTeardownLocked(s *State) error {
	_, err := os.Lstat(filepath.Join(v.dir, "teardown.pending"))
	s.leaving = !errors.Is(err, fs.ErrNotExist)
	return nil
}
