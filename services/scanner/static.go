// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"net/netip"
	"time"

	"nvpair/internal/jsonrpc"
	"nvpair/shared/discovery"
)

// staticNode takes a node of ours that was given by address (DEC-65, DEC-118). It
// is like one that was heard, kept by evidence instead of announcements: it leaves
// the directory when it is dead, and returns when it answers.
func (s *service) staticNode(req *jsonrpc.Request) {
	var n discovery.StaticNode
	if err := decode(req.Params, &n); err != nil {
		s.refuse(req, err)
		return
	}
	if n.HostUUID == "" || len(n.HostUUID) > maxLabel || len(n.Addresses) == 0 {
		s.refuse(req, jsonrpc.InvalidParams("hostUuid and at least one address are required"))
		return
	}
	ack(req)
	s.peers.fix(n)
}

func (s *service) staticNodeRemoved(req *jsonrpc.Request) {
	var n discovery.StaticNode
	if err := decode(req.Params, &n); err != nil {
		s.refuse(req, err)
		return
	}
	ack(req)
	s.peers.unfix(n.HostUUID)
}

// fix makes a node known by address. What it says of itself on the network, if
// that is heard too, counts for more.
func (p *peers) fix(n discovery.StaticNode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n.HostUUID == p.s.self.id() {
		return
	}
	known := p.byUUID[n.HostUUID]
	if known == nil {
		if !p.roomLocked(netip.Addr{}) {
			p.s.log.Warn("directory is full, node given by address ignored", "node", n.HostUUID)
			return
		}
		known = &peer{}
		p.byUUID[n.HostUUID] = known
	}
	known.fixed = true
	if time.Since(known.heard) > probeFrom*scanEvery { // else it says itself what it is (MN-32)
		known.name = label(n.Name)
		known.rec = record{hostUUID: n.HostUUID, ips: literals(n.Addresses), services: n.Services}
	}
	p.publishLocked(known)
}

// unfix makes a node one that lives by its announcements again.
func (p *peers) unfix(uuid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.byUUID[uuid]
	if known == nil || !known.fixed {
		return
	}
	known.fixed = false
	p.releaseLocked(uuid)
}
