// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"path/filepath"

	"nvpair/shared/serviceerror"
)

// unservedAfter is how many looks in a row have to miss an engine before a person is
// told, half a minute: engines are restarted, and start later than the node.
const unservedAfter = 6

// unserved is an engine of a manifest that is not there.
type unserved struct {
	engineID string // of the facade that looks for it
	port     int    // at which it was missed
	looks    int    // in a row that missed it there
	message  string // of the service error that stands; "" for none
}

// judge takes what one look of a facade found of the manifests of its dialect: a
// manifest that leads nowhere is one service error, until it leads somewhere or is
// gone. healthy are the ports at which engines are; own reports whether this node
// itself serves at a port, where no engine can be.
func (m *manifests) judge(engineID string, attached []manifest, healthy func(port int) bool, own func(port int) bool) {
	raise, lower := m.unservedOf(engineID, attached, healthy, own)
	for id, message := range raise {
		m.b.cfg.Log.Warn("engine of a manifest not found", "err", message)
		m.b.funnel.raise(serviceerror.ServiceError{
			ID: id, Message: message, Severity: serviceerror.SeverityWarning, Action: serviceerror.ActionNone,
		})
	}
	for _, id := range lower {
		m.b.funnel.lower(id)
	}
}

func (m *manifests) unservedOf(engineID string, attached []manifest, healthy func(int) bool, own func(int) bool) (raise map[string]string, lower []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	raise = make(map[string]string)
	missing := make(map[string]bool)
	for _, f := range attached {
		if healthy(f.port()) {
			continue
		}
		missing[f.file] = true
		u := m.unserved[f.file]
		if u == nil {
			u = new(unserved)
			m.unserved[f.file] = u
		}
		if u.port != f.port() {
			u.port, u.looks = f.port(), 0
		}
		u.engineID = engineID
		u.looks++
		if message := m.whyUnserved(f, u.looks, own(f.port())); message != "" && message != u.message {
			u.message = message
			raise[unservedID(f.file)] = message
		}
	}
	for file, u := range m.unserved {
		if u.engineID == engineID && !missing[file] {
			delete(m.unserved, file)
			if u.message != "" {
				lower = append(lower, unservedID(file))
			}
		}
	}
	return raise, lower
}

func unservedID(file string) string { return "engine-manager:manifest-unserved:" + file }

// whyUnserved says what is wrong and what to do, or "" while it is too early to say.
func (m *manifests) whyUnserved(f manifest, looks int, own bool) string {
	path := filepath.Join(m.dir, f.file)
	switch {
	case own:
		return fmt.Sprintf("engine manifest %s names port %d, at which nvpair itself serves: "+
			`set "runtime": {"port": N} to where the engine %q listens, or remove the file`, path, f.port(), f.Engine)
	case looks >= unservedAfter:
		return fmt.Sprintf("no engine answers at port %d, where the engine manifest %s says that %q is: "+
			`start it, set "runtime": {"port": N} to where it listens, or remove the file`, f.port(), path, f.Engine)
	}
	return ""
}
