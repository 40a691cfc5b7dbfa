// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"nvpair/internal/mdns"
	"nvpair/shared/discovery"
)

// Scans and misses (DI-44, DI-50 to DI-54).
const (
	scanEvery      = 5 * time.Second
	scanWindow     = 3 * time.Second
	probeFrom      = 3  // misses in a row
	evictAt        = 12 // misses in a row, a minute
	emptyScanGrace = 6
	probesAtOnce   = 8
	// maxResolved bounds the addresses of one node beside those it publishes.
	maxResolved = 8
	// maxCandidates bounds those at which a node is asked.
	maxCandidates = 8
)

// peers are the other nodes that were heard of, by uuid. They decide what is in the
// directory: a node enters with its first sighting and leaves when it was neither
// heard nor found alive for a minute. What is said on the network never removes a
// node that answers.
type peers struct {
	s   *service
	dir *directory

	mu       sync.Mutex // guards the rest; comes before the directory's lock
	byUUID   map[string]*peer
	heard    bool // anything was, in the running scan, this node's own record included
	selfSeen bool // this node's own record was heard once: it counts as a known one
	empty    int  // scans in a row that heard nothing
}

// peer is one of them.
type peer struct {
	name    string
	rec     record
	source  netip.Addr              // who made it known
	now     []netip.Addr            // resolved in the running scan
	before  []netip.Addr            // in the one before
	seen    bool                    // in the running scan
	heard   time.Time               // when a record of it was taken last
	misses  int                     // scans in a row without a sighting or a sign of life
	asked   discovery.DirectoryNode // as it was last when it could be asked whether it lives
	listed  bool                    // it is in the directory
	fixed   bool                    // given by address (DEC-65)
	member  bool                    // of the cluster, whose last places are known (DEC-31)
	checked bool                    // what a record says of it is being looked at
	lastAt  time.Time               // when that was last begun
	leaving bool                    // it said goodbye and is being asked whether it is gone
}

// sighted takes what one packet says. It is called on the network's goroutine and
// must not wait.
func (p *peers) sighted(s mdns.Sighting) {
	if s.Goodbye {
		p.farewell(s.Instance)
		return
	}
	rec := parseRecord(s.TXT)
	if rec.hostUUID == "" {
		p.s.log.Debug("node record without a uuid ignored", "node", s.Instance) // DI-70
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = true
	if rec.hostUUID == p.s.self.id() {
		p.selfSeen = true // otherwise ours alone to say (DI-75)
		return
	}
	known := p.byUUID[rec.hostUUID]
	if known == nil {
		if !p.roomLocked(s.Source) {
			return
		}
		known = &peer{source: s.Source}
		p.byUUID[rec.hostUUID] = known
	}
	if known.listed && p.dir.isProven(rec.hostUUID) {
		if moves := p.movesLocked(known, rec, s.Addrs); moves || !maps.Equal(known.rec.services, rec.services) {
			p.verifyLocked(known, rec, s, moves)
			return
		}
	}
	p.takeLocked(known, rec, s)
}

// takeLocked makes a record what is known of a node.
func (p *peers) takeLocked(known *peer, rec record, s mdns.Sighting) {
	known.seen, known.misses, known.heard = true, 0, time.Now()
	known.name, known.rec = label(s.Instance), rec
	for _, a := range s.Addrs {
		if a = a.Unmap(); reachable(a) && len(known.now) < maxResolved && !slices.Contains(known.now, a) {
			known.now = append(known.now, a)
		}
	}
	p.publishLocked(known)
}

// roomLocked reports whether one more node can be taken. Those of one sender that
// did not prove to be nodes of ours are few, and when there are too many in all, one
// gives way that had its time to: a flood of records must not push out real nodes,
// and not keep them out for long.
func (p *peers) roomLocked(source netip.Addr) bool {
	unproven := 0
	for uuid, known := range p.byUUID {
		if known.source == source && !known.kept() && !p.dir.isProven(uuid) {
			unproven++
		}
	}
	if source.IsValid() && unproven >= maxUnproven {
		return false
	}
	if len(p.byUUID) < maxPeers {
		return true
	}
	for _, uuid := range p.dir.unproven(proofTime) {
		if known := p.byUUID[uuid]; known != nil && !known.kept() {
			p.dropLocked(uuid)
			return true
		}
	}
	return false
}

// kept reports whether the node is known whether it is heard or not.
func (p *peer) kept() bool { return p.fixed || p.member }

// maxUnproven is how many unproven nodes one sender may make known: more than
// there are behind any reflector that starts.
const maxUnproven = 64

// proofTime is what a new node has to answer under its uuid.
const proofTime = 5 * time.Second

// maxPeers leaves room for this node in the directory (DEC-116).
const maxPeers = 511

// candidates are where the node is to be reached, its own order first (DI-29), then
// what the network resolved. This machine's own addresses are no other node's
// (DEC-69).
func (p *peer) candidates(own func(netip.Addr) bool) []string {
	var out []string
	add := func(a netip.Addr) {
		a = a.Unmap()
		if s := a.String(); reachable(a) && len(out) < maxCandidates && !own(a) && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	for _, ip := range p.rec.ips {
		if a, err := netip.ParseAddr(ip); err == nil {
			add(a)
		}
	}
	resolved := append(slices.Clone(p.now), p.before...)
	slices.SortFunc(resolved, func(a, b netip.Addr) int {
		return cmp.Or(cmp.Compare(class(a), class(b)), cmp.Compare(a.String(), b.String()))
	})
	for _, a := range resolved {
		if a.Is4() { // AAAA come last (DI-30)
			add(a)
		}
	}
	for _, a := range resolved {
		if a.Is6() {
			add(a)
		}
	}
	return out
}

// publishLocked brings the directory up to date with a node.
func (p *peers) publishLocked(known *peer) {
	n := known.project(p.s.isOwn)
	if probeable(n) {
		known.asked = n
	}
	known.listed = true
	if p.dir.put(n) {
		p.s.fresh(n.HostUUID)
	}
}

// project is a peer as the directory would have it.
func (p *peer) project(own func(netip.Addr) bool) discovery.DirectoryNode {
	n := discovery.DirectoryNode{HostUUID: p.rec.hostUUID, Name: p.name, IPs: p.candidates(own), ClusterUUID: p.rec.clusterUUID, Services: p.rec.services}
	if len(n.IPs) > 0 {
		n.IP = n.IPs[0]
	}
	return n
}

func (p *peers) dropLocked(uuid string) {
	known := p.byUUID[uuid]
	if known == nil {
		return
	}
	known.listed = false
	if !known.kept() {
		delete(p.byUUID, uuid)
	}
	p.dir.remove(uuid)
	p.s.forget(uuid)
}

// scan runs scans until ctx ends. ask sends the question.
func (p *peers) scan(ctx context.Context, ask func()) {
	for {
		began := time.Now()
		ask()
		if !pause(ctx, scanWindow) {
			return
		}
		p.account(ctx)
		if !pause(ctx, scanEvery-time.Since(began)) {
			return
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// account ends a scan: who was not heard has a miss more, and who has several is
// asked whether it lives.
func (p *peers) account(ctx context.Context) {
	missing := p.miss()
	alive := make([]bool, len(missing))
	atOnce(len(missing), probesAtOnce, func(i int) {
		switch m := missing[i]; {
		case !m.listed:
			alive[i] = p.s.is(m.node) // to come back takes more than to stay
		case m.proven:
			alive[i] = p.s.alive(ctx, m.node)
		}
	})
	if ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, m := range missing {
		known := p.byUUID[m.uuid]
		switch {
		case known == nil || known.seen: // gone or heard meanwhile
		case alive[i]:
			known.misses = 0
			p.publishLocked(known)
		case known.misses >= evictAt && known.listed:
			p.s.log.Info("node is gone", "node", m.uuid, "name", known.name)
			p.dropLocked(m.uuid)
		}
	}
}

type missingPeer struct {
	uuid   string
	node   discovery.DirectoryNode
	listed bool
	proven bool // or known whether heard or not; the others are not asked: records alone must not hold up a scan
}

// miss charges the misses of a scan and returns who is to be probed, by uuid.
func (p *peers) miss() []missingPeer {
	p.mu.Lock()
	defer p.mu.Unlock()
	deaf := p.deafLocked()
	var missing []missingPeer
	for uuid, known := range p.byUUID {
		if !known.seen && !deaf {
			known.misses++
		}
		known.before, known.now = known.now, nil
		if known.seen {
			p.publishLocked(known)
		} else if known.misses >= probeFrom || known.kept() {
			known.before = nil
			if n, ok := p.dir.node(uuid); ok {
				missing = append(missing, missingPeer{uuid, n, true, known.kept() || p.dir.isProven(uuid)})
			} else if known.kept() {
				missing = append(missing, missingPeer{uuid, known.project(p.s.isOwn), false, false})
			}
		}
		known.seen = false
	}
	slices.SortFunc(missing, func(a, b missingPeer) int { return cmp.Compare(a.uuid, b.uuid) })
	return missing
}

// deafLocked reports whether nobody is to be charged: a scan that hears nothing at
// all says more about this node than about all others at once (DI-54).
func (p *peers) deafLocked() bool {
	heard := p.heard
	p.heard = false
	known := len(p.byUUID)
	if p.selfSeen {
		known++
	}
	if heard || known < 2 {
		p.empty = 0
		return false
	}
	p.empty++
	switch p.empty {
	case 1:
		p.s.log.Warn("no node was heard at all; is multicast blocked?")
	case emptyScanGrace + 1:
		p.s.log.Warn("still no node is heard, they are asked directly from now on", "scans", p.empty)
	}
	return p.empty <= emptyScanGrace
}
