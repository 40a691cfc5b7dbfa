// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"nvpair/internal/atomicfile"
	"nvpair/shared/serviceerror"
)

const (
	maxManifests     = 64
	maxManifestBytes = 1 << 20
)

// manifests reads the user's engine manifests as far as the facades need them:
// attach-only engines with a dialect and a fixed port are engines of this node
// (DEC-132). The engine manager will own all of it.
type manifests struct {
	b   *Broker
	dir string

	mu       sync.Mutex // guards the rest; the files are small and read under it, by the facades' loops only
	stamp    string     // of the directory as last read
	found    []manifest
	standing map[string]string    // what is wrong, by the id of the service error that says so
	unserved map[string]*unserved // engines of manifests that are not there, by file; see unserved.go
}

type manifest struct {
	file string

	Engine     string          `json:"engine"`
	Dialect    string          `json:"dialect"` // ollama or openai
	AttachOnly bool            `json:"attach_only"`
	Runtime    manifestRuntime `json:"runtime"`
	Platforms  map[string]struct {
		Runtime manifestRuntime `json:"runtime"`
	} `json:"platforms"`
}

type manifestRuntime struct {
	Port int `json:"port"`
}

func newManifests(b *Broker) *manifests {
	return &manifests{b: b, dir: filepath.Join(b.cfg.DataDir, "engines"), standing: make(map[string]string), unserved: make(map[string]*unserved)}
}

// port is the manifest's port on this platform.
func (m manifest) port() int {
	if p, ok := m.Platforms[runtime.GOOS+"/"+runtime.GOARCH]; ok && p.Runtime.Port != 0 {
		return p.Runtime.Port
	}
	return m.Runtime.Port
}

// attached returns the attach-only manifests of engines that speak the dialect of
// that facade.
func (m *manifests) attached(engineID string) []manifest {
	list, raise, lower := m.refresh(dialectOf(engineID))
	for id, message := range raise {
		m.b.cfg.Log.Warn("engine manifest ignored", "err", message)
		m.b.funnel.raise(serviceerror.ServiceError{
			ID: id, Message: message, Severity: serviceerror.SeverityWarning, Action: serviceerror.ActionNone,
		})
	}
	for _, id := range lower {
		m.b.funnel.lower(id)
	}
	return list
}

// dialectOf is that of a facade, by its engine.
func dialectOf(engineID string) string {
	if engineID == "lmstudio" {
		return "openai"
	}
	return engineID
}

// refresh reads the manifests again if a file was added, changed or removed, and
// returns those of that dialect and what service errors begin and end. A bad file is
// one service error and disturbs no other (DEC-16).
func (m *manifests) refresh(dialect string) (list []manifest, raise map[string]string, lower []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if names, stamp, ok := m.scan(); ok && stamp != m.stamp {
		m.stamp = stamp
		wrong := m.readAll(names)
		raise = wrong
		for id := range m.standing {
			if wrong[id] == "" {
				lower = append(lower, id)
			}
		}
		m.standing = wrong
	}
	for _, f := range m.found {
		if f.AttachOnly && f.Dialect == dialect {
			list = append(list, f)
		}
	}
	return list, raise, lower
}

// readAll replaces what was found and returns what is wrong, by error id.
func (m *manifests) readAll(names []string) (wrong map[string]string) {
	m.found, wrong = nil, make(map[string]string)
	for i, name := range names {
		if i == maxManifests {
			wrong["engine-manager:manifests-too-many"] =
				fmt.Sprintf("only the first %d engine manifests in %s are used", maxManifests, m.dir)
			break
		}
		f, err := m.read(name)
		switch {
		case errors.Is(err, fs.ErrNotExist): // gone between the look and the read
		case err != nil:
			wrong["engine-manager:manifest-invalid:"+name] = fmt.Sprintf("engine manifest %s is ignored: %v", name, err)
		default:
			f.file = name
			m.found = append(m.found, f)
		}
	}
	return wrong
}

// scan returns the manifests' names, sorted, and a stamp that changes with any of
// them. ok is false if the directory cannot be read; a missing one is empty.
func (m *manifests) scan() (names []string, stamp string, ok bool) {
	entries, err := os.ReadDir(m.dir) // sorted by name
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", false
	}
	var b strings.Builder
	b.WriteString("\n") // so that an empty directory differs from one never read
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || e.IsDir() || !strings.EqualFold(filepath.Ext(e.Name()), ".json") {
			continue
		}
		names = append(names, e.Name())
		fmt.Fprintf(&b, "%s %d %s\n", e.Name(), info.Size(), info.ModTime().Format(time.RFC3339Nano))
	}
	return names, b.String(), true
}

func (m *manifests) read(name string) (manifest, error) {
	var f manifest
	raw, err := atomicfile.Read(filepath.Join(m.dir, name), maxManifestBytes)
	if err != nil {
		return f, err
	}
	var wrongType *json.UnmarshalTypeError
	if err := json.Unmarshal(raw, &f); errors.As(err, &wrongType) {
		return f, fmt.Errorf("%s must not be a JSON %s", cmp.Or(wrongType.Field, "the manifest"), wrongType.Value)
	} else if err != nil {
		return f, fmt.Errorf("it is not JSON: %w", err)
	}
	switch {
	case f.Engine == "":
		return f, errors.New(`"engine" is required`)
	case !f.AttachOnly && f.port() != 0:
		return f, errors.New(`"attach_only": true is required: engines are not started yet, only used`)
	case f.AttachOnly && f.Dialect != "ollama" && f.Dialect != "openai":
		return f, fmt.Errorf(`"dialect" must be "ollama" or "openai", not %q`, f.Dialect)
	case f.AttachOnly && (f.port() < 1 || f.port() > 65535):
		return f, errors.New(`an attach-only engine needs "runtime": {"port": N}, N from 1 to 65535`)
	}
	return f, nil
}
