// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"net/netip"
	"slices"

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

// verifyLocked asks the node at its old place before it takes the record: anybody
// can send one, and anybody can answer as that node at the new place. While it
// answers where it was, the record is ignored.
func (p *peers) verifyLocked(known *peer, rec record, s mdns.Sighting) {
	if known.checked {
		return
	}
	select {
	case p.s.asking <- struct{}{}:
	default:
		return // asked when the record comes again
	}
	known.checked = true
	old := known.project(p.s.isOwn)
	p.s.running.Go(func() {
		defer func() { <-p.s.asking }()
		moved := !p.s.is(old)
		p.mu.Lock()
		defer p.mu.Unlock()
		known.checked = false
		switch {
		case p.byUUID[rec.hostUUID] != known || p.s.ctx.Err() != nil: // gone meanwhile
		case moved:
			p.takeLocked(known, rec, s)
		default:
			p.s.log.Debug("record ignored: the node answers where it was", "node", rec.hostUUID, "source", s.Source)
		}
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
