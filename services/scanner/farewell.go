// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"net/netip"

	"nvpair/shared/discovery"
)

// farewell asks the nodes of that name whether they are gone, so that one that
// stopped in order leaves the directory at once. The goodbye itself proves nothing:
// anybody can send one, and names are not unique.
func (p *peers) farewell(instance string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uuid, known := range p.byUUID {
		if known.name != instance || known.farewel || !known.listed {
			continue
		}
		n, ok := p.dir.node(uuid)
		if !ok || !probeable(n) {
			continue
		}
		known.farewel = true
		p.s.running.Go(func() { p.seeOff(uuid, n) })
	}
}

// seeOff removes a node once it refuses what it was to answer.
func (p *peers) seeOff(uuid string, n discovery.DirectoryNode) {
	gone := false
	for _, wait := range farewellProbes() {
		if !pause(p.s.ctx, wait) {
			return
		}
		if gone = !p.s.connects(p.s.ctx, n); gone {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.byUUID[uuid]
	if known == nil {
		return
	}
	known.farewel = false
	if gone && p.s.ctx.Err() == nil {
		p.s.log.Info("node left", "node", uuid, "name", known.name)
		p.dropLocked(uuid)
	}
}

// project is a peer as the directory would have it.
func (p *peer) project(own func(netip.Addr) bool) discovery.DirectoryNode {
	n := discovery.DirectoryNode{HostUUID: p.rec.hostUUID, Name: p.name, IPs: p.candidates(own), Services: p.rec.services}
	if len(n.IPs) > 0 {
		n.IP = n.IPs[0]
	}
	return n
}
