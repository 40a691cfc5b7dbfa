// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"net/netip"
	"slices"
	"time"

	"nvpair/internal/mdns"
	"nvpair/shared/discovery"
)

// movesLocked reports whether a record sends those who look for a node somewhere
// else: to other addresses only, or to another port of its inventory.
func (p *peers) movesLocked(known *peer, rec record, addrs []netip.Addr) bool {
	next := peer{rec: rec, now: addrs}
	before, after := known.candidates(p.s.isOwn), next.candidates(p.s.isOwn)
	stays := slices.ContainsFunc(after, func(ip string) bool { return slices.Contains(before, ip) })
	return !stays || known.rec.services[discovery.ServiceNodeInfo] != rec.services[discovery.ServiceNodeInfo]
}

// verifyEvery is how often a node is asked what a record says of it, at most.
const verifyEvery = time.Second

// verifyLocked asks a node at its old place before it takes a record that changes
// where the node is or what it serves: anybody can send one, and anybody can answer as
// that node at a new place. While the node answers where it was, it is not moved, and
// its own word on its services counts (NI-40).
func (p *peers) verifyLocked(known *peer, rec record, s mdns.Sighting, moves bool) {
	if known.checked || time.Since(known.lastAt) < verifyEvery {
		return // asked when the record comes again
	}
	select {
	case p.s.asking <- struct{}{}:
	default:
		return
	}
	known.checked, known.lastAt = true, time.Now()
	old := known.project(p.s.isOwn)
	p.s.running.Go(func() {
		defer func() { <-p.s.asking }()
		got, err := p.s.infos.of(p.s.ctx, old)
		answers := err == nil && got.hostUUID == rec.hostUUID
		p.mu.Lock()
		defer p.mu.Unlock()
		known.checked = false
		switch {
		case p.byUUID[rec.hostUUID] != known || p.s.ctx.Err() != nil: // gone meanwhile
			return
		case answers && moves:
			p.s.log.Debug("record ignored: the node answers where it was", "node", rec.hostUUID, "source", s.Source)
			return
		case answers && got.services != nil:
			rec.services = got.services
		}
		p.takeLocked(known, rec, s)
	})
}

// is reports whether a node answers as itself where it is said to be.
func (s *service) is(n discovery.DirectoryNode) bool {
	port := n.Services[discovery.ServiceNodeInfo].Port
	if port == 0 {
		return false
	}
	found := make([]bool, len(n.IPs))
	atOnce(len(n.IPs), len(n.IPs), func(i int) {
		got, err := s.infos.ask(s.ctx, n.IPs[i], port, n.HostUUID)
		found[i] = err == nil && got.hostUUID == n.HostUUID
	})
	return slices.Contains(found, true)
}
