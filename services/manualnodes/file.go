// SPDX-License-Identifier: Apache-2.0

package manualnodes

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"

	"nvpair/internal/atomicfile"
	wire "nvpair/shared/manualnodes"
	"nvpair/shared/serviceerror"
)

// maxFileBytes is far more than a full list takes.
const maxFileBytes = 1 << 20

// saved is a node as it is on disk (DEC-66).
type saved struct {
	ID      string      `json:"id"`
	Address string      `json:"address"`
	Name    string      `json:"name,omitempty"`
	TLSPort int         `json:"tls_port,omitempty"`
	MTLS    bool        `json:"mtls,omitempty"`
	Ports   *wire.Ports `json:"ports,omitempty"`
}

// with returns the node with what was said of it now. One that moves to another
// address keeps nothing of the old one but its id (MN-9).
func (e saved) with(a wire.Add) saved {
	if canonical(e.Address) != canonical(a.Address) {
		e = saved{ID: e.ID}
	}
	e.Address, e.Name = a.Address, cmp.Or(a.Name, e.Name)
	if a.TLSPort != nil {
		e.TLSPort = *a.TLSPort
	}
	if a.MTLS != nil {
		e.MTLS = *a.MTLS
	}
	if a.Ports != nil {
		e.Ports = a.Ports
		if *e.Ports == (wire.Ports{}) {
			e.Ports = nil
		}
	}
	return e
}

// canonical is the form in which two spellings of one address are equal.
func canonical(address string) string {
	if a, err := netip.ParseAddr(address); err == nil {
		return a.Unmap().String()
	}
	return strings.TrimSuffix(strings.ToLower(address), ".")
}

// list is the nodes in the order in which they were added, as they are on disk.
// It is not safe for concurrent use.
type list struct {
	path   string
	legacy string // where a desktop app of an earlier release kept them

	entries []saved
	// unreadable is why the file is left alone: what was added since the start is
	// then only in memory. Nil while the file holds entries.
	unreadable error
}

// load reads the file. Without one it imports the legacy list, once (DEC-119).
func (l *list) load(log *slog.Logger) {
	atomicfile.RemoveLeftovers(l.path)
	data, err := atomicfile.Read(l.path, maxFileBytes)
	if errors.Is(err, fs.ErrNotExist) {
		l.importLegacy(log)
		return
	}
	if err == nil {
		l.entries, err = decodeList(data)
	}
	l.unreadable = err
}

// decodeList returns the nodes of a file that can be used, and an error if that is
// not all of it.
func decodeList(data []byte) (usable []saved, err error) {
	var entries []saved
	if err := json.Unmarshal(data, &entries); err != nil {
		return nil, err
	}
	for i, e := range entries {
		a := wire.Add{Address: cleanAddress(e.Address), Name: e.Name, TLSPort: &e.TLSPort, Ports: e.Ports}
		e.Address = a.Address
		e.ID = cmp.Or(e.ID, e.Name, wire.IDPrefix+e.Address)
		wrong := checkAdd(a)
		switch {
		case wrong != nil:
		case slices.ContainsFunc(usable, func(u saved) bool { return u.ID == e.ID }):
			wrong = fmt.Errorf("a second one with the id %q", e.ID)
		case len(usable) >= maxNodes:
			wrong = fmt.Errorf("more than %d", maxNodes)
		case len(e.ID) > len(wire.IDPrefix)+maxAddressBytes:
			wrong = errors.New("its id is too long")
		}
		if wrong != nil {
			err = errors.Join(err, fmt.Errorf("node %d of the list: %w", i+1, wrong))
			continue
		}
		usable = append(usable, e)
	}
	return usable, err
}

// importLegacy takes over the list of a desktop app; what of it cannot be read is
// no loss that a node could repair (MN-38).
func (l *list) importLegacy(log *slog.Logger) {
	data, err := atomicfile.Read(l.legacy, maxFileBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var entries []saved
	if err == nil {
		entries, err = decodeList(data)
	}
	if err == nil || len(entries) > 0 {
		err = errors.Join(err, l.replace(entries))
	}
	if err != nil {
		log.Warn("list of nodes of an earlier release not wholly taken over", "path", l.legacy, "err", err)
	}
	if len(l.entries) > 0 {
		log.Info("list of nodes of an earlier release taken over", "path", l.legacy, "nodes", len(l.entries))
	}
}

// find returns the node that an addition is about: the one at that address, else
// the one with that id, else a zero value.
func (l *list) find(a wire.Add) saved {
	id := cmp.Or(a.Name, wire.IDPrefix+a.Address)
	i := slices.IndexFunc(l.entries, func(e saved) bool { return canonical(e.Address) == canonical(a.Address) })
	if i < 0 {
		i = l.index(id)
	}
	if i < 0 {
		return saved{}
	}
	return l.entries[i]
}

func (l *list) index(id string) int {
	return slices.IndexFunc(l.entries, func(e saved) bool { return e.ID == id })
}

func (l *list) has(id string) bool { return l.index(id) >= 0 }

// put adds or replaces a node, on disk first.
func (l *list) put(e saved) error {
	next := slices.Clone(l.entries)
	if i := l.index(e.ID); i >= 0 {
		next[i] = e
	} else {
		next = append(next, e)
	}
	return l.replace(next)
}

// drop removes a node, on disk first.
func (l *list) drop(id string) error {
	return l.replace(slices.DeleteFunc(slices.Clone(l.entries), func(e saved) bool { return e.ID == id }))
}

// replace writes the list and then takes it. A file that could not be read is
// never overwritten: until it is moved away the list is in memory only.
func (l *list) replace(next []saved) error {
	if l.unreadable != nil {
		if _, err := os.Lstat(l.path); !errors.Is(err, fs.ErrNotExist) {
			l.entries = next
			return nil
		}
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ") // people read this file
	if next == nil {
		next = []saved{}
	}
	if err := enc.Encode(next); err != nil {
		return err
	}
	if err := atomicfile.Write(l.path, buf.Bytes()); err != nil {
		return err
	}
	l.entries, l.unreadable = next, nil
	return nil
}

// restore takes the list of the last run and probes its nodes.
func (s *service) restore() {
	s.list.load(s.log)
	if err := s.list.unreadable; err != nil {
		s.log.Error("list of nodes not readable, left alone", "path", s.list.path, "err", err)
		s.fileError = true
		s.emit(serviceerror.MethodReport, serviceerror.ServiceError{
			ID: wire.FileErrorID,
			Message: fmt.Sprintf("The list of nodes added by address, %s, cannot be read: %v. It is left as it is. "+
				"Repair it and restart the node, or move it away; until then nodes added now are forgotten at the next restart.", s.list.path, err),
			Severity: serviceerror.SeverityError, Action: serviceerror.ActionNone,
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.list.entries {
		s.takeLocked(e)
		s.nodes[e.ID].mayStand = true // the last run may have reported it
	}
	if len(s.list.entries) > 0 {
		s.some <- struct{}{} // its one place is free
		s.log.Info("nodes restored", "nodes", len(s.list.entries))
	}
}

// listWritten ends the report of an unreadable list once there is a good one.
func (s *service) listWritten() {
	if s.fileError && s.list.unreadable == nil {
		s.fileError = false
		s.emit(serviceerror.MethodClear, serviceerror.Clear{ID: wire.FileErrorID})
	}
}
