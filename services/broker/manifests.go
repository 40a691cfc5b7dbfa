// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
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

	mu     sync.Mutex // guards the rest; files are read under it, by the advertising loops only
	stamp  string     // of the directory as last read
	found  []manifest
	errors map[string]bool // ids of errors that stand
}

type manifest struct {
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
	return &manifests{b: b, dir: filepath.Join(b.cfg.DataDir, "engines"), errors: make(map[string]bool)}
}

// port is the manifest's port on this platform.
func (m manifest) port() int {
	if p, ok := m.Platforms[runtime.GOOS+"/"+runtime.GOARCH]; ok && p.Runtime.Port != 0 {
		return p.Runtime.Port
	}
	return m.Runtime.Port
}

// ports returns where engines that speak the dialect of that facade may be.
func (m *manifests) ports(engineID string) []int {
	dialect := map[string]string{"ollama": "ollama", "lmstudio": "openai"}[engineID]
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refreshLocked()
	var ports []int
	for _, f := range m.found {
		if f.AttachOnly && f.Dialect == dialect && f.port() > 0 && f.port() <= 65535 {
			ports = append(ports, f.port())
		}
	}
	return ports
}

// refreshLocked reads the manifests again if a file was added, changed or
// removed. A bad file is one service error and disturbs no other (DEC-16).
func (m *manifests) refreshLocked() {
	names, stamp := m.scan()
	if stamp == m.stamp {
		return
	}
	m.stamp, m.found = stamp, nil
	bad := make(map[string]bool)
	for _, name := range names {
		f, err := m.read(name)
		if err != nil {
			id := "engine-manager:manifest-invalid:" + name
			bad[id] = true
			m.b.cfg.Log.Warn("engine manifest ignored", "path", filepath.Join(m.dir, name), "err", err)
			m.b.funnel.raise(serviceerror.ServiceError{
				ID: id, Message: fmt.Sprintf("engine manifest %s is ignored: %v", name, err),
				Severity: serviceerror.SeverityWarning, Action: serviceerror.ActionNone,
			})
			continue
		}
		m.found = append(m.found, f)
	}
	for id := range m.errors {
		if !bad[id] {
			m.b.funnel.lower(id)
		}
	}
	m.errors = bad
}

// scan returns the manifests' names and a stamp that changes with any of them.
func (m *manifests) scan() (names []string, stamp string) {
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return nil, "none"
	}
	var b strings.Builder
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || e.IsDir() || !strings.EqualFold(filepath.Ext(e.Name()), ".json") || len(names) >= maxManifests {
			continue
		}
		names = append(names, e.Name())
		fmt.Fprintf(&b, "%s %d %s\n", e.Name(), info.Size(), info.ModTime().Format(time.RFC3339Nano))
	}
	slices.Sort(names)
	return names, b.String()
}

func (m *manifests) read(name string) (manifest, error) {
	var f manifest
	raw, err := atomicfile.Read(filepath.Join(m.dir, name), maxManifestBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f, nil // gone between the look and the read
	case err != nil:
		return f, err
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		return f, err
	}
	switch {
	case f.Engine == "":
		return f, errors.New(`"engine" is required`)
	case f.AttachOnly && f.Dialect != "" && f.Dialect != "ollama" && f.Dialect != "openai":
		return f, fmt.Errorf(`"dialect" must be "ollama" or "openai", not %q`, f.Dialect)
	case f.AttachOnly && f.port() == 0:
		return f, errors.New(`an attach-only engine needs "runtime": {"port": N}`)
	}
	return f, nil
}
