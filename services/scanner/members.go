// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"

	"nvpair/internal/atomicfile"
	"nvpair/internal/clustertrust"
	"nvpair/shared/discovery"
)

const (
	membersFile     = "known-peers.json"
	maxMembersBytes = 4 << 20
)

// members remembers across restarts where the other members of the cluster answered
// last, so that they are found where multicast does not reach (DEC-31). It is a
// memory of places only: whom to trust is in the cluster's directory.
type members struct {
	path string
	log  *slog.Logger

	// known is by host uuid. Only one goroutine at a time may use it: the one that
	// holds service.applying.
	known map[string]member

	// unsaved: the file is not what is known. It belongs to the sweep, which alone
	// writes.
	unsaved bool
}

// member is one of them as it is on disk.
type member struct {
	HostUUID    string         `json:"hostUuid"`
	ClusterUUID string         `json:"clusterUuid"` // its principal
	Name        string         `json:"name,omitempty"`
	Addresses   []string       `json:"addresses"` // the one that answered last first
	Services    map[string]int `json:"services"`  // ports by service code
}

// load reads the file. Without a usable one nobody is known, and members are found
// by what they announce.
func (m *members) load() {
	m.known = make(map[string]member)
	atomicfile.RemoveLeftovers(m.path)
	raw, err := atomicfile.Read(m.path, maxMembersBytes)
	var file struct{ Peers []member }
	if err == nil {
		err = json.Unmarshal(raw, &file)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			m.log.Warn("last addresses of paired nodes ignored", "path", m.path, "err", err)
		}
		return
	}
	for _, p := range file.Peers {
		if p.Addresses = literals(p.Addresses); p.HostUUID != "" && len(p.HostUUID) <= maxLabel && len(p.Addresses) > 0 && len(m.known) < maxPeers {
			m.known[p.HostUUID] = p
		}
	}
}

// of returns those that are still members.
func (m *members) of(state *clustertrust.State) []member {
	var list []member
	for _, uuid := range slices.Sorted(maps.Keys(m.known)) {
		if p := m.known[uuid]; state.Trusts(p.ClusterUUID) {
			list = append(list, p)
		}
	}
	return list
}

// learn takes where members answered last, and reports whether that is news. Who is
// no member any more is forgotten.
func (m *members) learn(state *clustertrust.State, seen []member) (changed bool) {
	next := make(map[string]member)
	for _, p := range append(m.of(state), seen...) {
		next[p.HostUUID] = p
	}
	changed = !reflect.DeepEqual(next, m.known)
	m.known = next
	return changed
}

// save writes the file. What could not be written is tried again with the next sweep.
func (m *members) save(list []member) {
	var file struct {
		Peers []member `json:"peers"`
	}
	file.Peers = list
	raw, err := json.MarshalIndent(file, "", "  ")
	if err == nil {
		err = atomicfile.Write(m.path, raw)
	}
	if err != nil && !m.unsaved {
		m.log.Warn("last addresses of paired nodes not saved", "path", m.path, "err", err)
	}
	m.unsaved = err != nil
}

// rememberMembers keeps where the members are that answered as themselves.
func (s *service) rememberMembers() {
	var seen []member
	for _, n := range s.directory.trustedAndProven() {
		at := s.infos.places.of(n.HostUUID)
		if at == "" {
			continue
		}
		p := member{HostUUID: n.HostUUID, ClusterUUID: n.ClusterUUID, Name: n.Name, Services: make(map[string]int)}
		p.Addresses = literals(append([]string{at}, n.IPs...))
		for code, service := range n.Services {
			p.Services[code] = service.Port
		}
		seen = append(seen, p)
	}
	s.applying.Lock()
	changed := s.members.learn(s.applied, seen)
	list := s.members.of(s.applied)
	s.peers.keepMembers(list) // those that were paired since the start too
	s.applying.Unlock()
	if changed || s.members.unsaved {
		s.members.save(list)
	}
}

func membersPath(base string) string { return filepath.Join(base, membersFile) }

// keepMembers makes members known wherever they are, and lets those go that are
// members no more. One that is not heard is asked at its last places in each scan.
func (p *peers) keepMembers(list []member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	keep := make(map[string]bool)
	for _, m := range list {
		if m.HostUUID == p.s.self.id() {
			continue
		}
		keep[m.HostUUID] = true
		known := p.byUUID[m.HostUUID]
		if known == nil {
			if !p.roomLocked(netip.Addr{}) {
				continue // tried again with the next sweep
			}
			known = &peer{name: label(m.Name), rec: record{hostUUID: m.HostUUID, clusterUUID: m.ClusterUUID, ips: m.Addresses}}
			known.rec.services = make(map[string]discovery.Service, len(m.Services))
			for code, port := range m.Services {
				known.rec.services[code] = discovery.Service{Port: port}
			}
			p.byUUID[m.HostUUID] = known
		}
		known.member = true
	}
	for uuid, known := range p.byUUID {
		if known.member && !keep[uuid] {
			known.member = false
			p.releaseLocked(uuid)
		}
	}
}

// releaseLocked drops a node that was kept only by what has just ended, unless it is
// heard.
func (p *peers) releaseLocked(uuid string) {
	if known := p.byUUID[uuid]; !known.kept() && (known.misses >= probeFrom || !known.listed) {
		p.dropLocked(uuid)
	}
}
