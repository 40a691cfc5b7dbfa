// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"nvpair/shared/discovery"
)

// inventoriesAtOnce bounds the questions of one sweep (DI-88).
const inventoriesAtOnce = 16

// fresh asks a node that is new, or says something new, for its inventory. It
// returns at once. When many are asked already, the next sweep asks it: records
// alone must not make this node open connections without bound.
func (s *service) fresh(uuid string) {
	select {
	case s.asking <- struct{}{}:
	default:
		return
	}
	s.running.Go(func() {
		defer func() { <-s.asking }()
		switch n, known := s.directory.node(uuid); {
		case s.ctx.Err() != nil:
		case uuid == s.self.id():
			s.takeModels(s.ctx, s.self.local())
		case known:
			s.enrich(s.ctx, n)
			s.prefer(s.ctx, n)
			s.supersede(n)
			if n, known = s.directory.node(uuid); known { // its node-info says in which cluster it is
				s.takeModels(s.ctx, n)
			}
		}
	})
}

// enrich adds what a node says of itself to the directory. A failure changes
// nothing: the last good answer stands (DI-81).
func (s *service) enrich(ctx context.Context, n discovery.DirectoryNode) {
	got, err := s.infos.of(ctx, n)
	if err != nil {
		s.log.Debug("node did not tell its inventory", "node", n.HostUUID, "err", err)
		return
	}
	s.evidence.answers(n.HostUUID)
	s.directory.learn(n.HostUUID, got.described())
}

// prefer asks a node at the address that it would rather be asked at than where it
// answers now. If it is itself there too, that address is used from then on.
func (s *service) prefer(ctx context.Context, n discovery.DirectoryNode) {
	ip, other := s.directory.preferred(n.HostUUID)
	if !other {
		return
	}
	got, err := s.infos.ask(ctx, ip, n.Services[discovery.ServiceNodeInfo].Port, n.HostUUID)
	if err == nil && got.hostUUID == n.HostUUID {
		s.infos.places.remember(n.HostUUID, ip)
		s.directory.learn(n.HostUUID, got.described())
	}
}

// refreshInventories asks all nodes (DI-89, DI-92).
func (s *service) refreshInventories(ctx context.Context) {
	nodes := slices.DeleteFunc(s.directory.nodes(), func(n discovery.DirectoryNode) bool {
		return n.Services[discovery.ServiceNodeInfo].Port == 0
	})
	atOnce(len(nodes), inventoriesAtOnce, func(i int) { s.enrich(ctx, nodes[i]) })
	nodes = append(s.directory.nodes(), s.self.local())
	atOnce(len(nodes), inventoriesAtOnce, func(i int) { s.takeModels(ctx, nodes[i]) })
	s.prune()
}

// prune drops what was remembered of a node after it had left.
func (s *service) prune() {
	known := map[string]bool{s.self.id(): true}
	for _, n := range s.directory.nodes() {
		known[n.HostUUID] = true
	}
	gone := func(uuid string) bool { return !known[uuid] }
	s.infos.places.prune(gone)
	s.models.places.prune(gone)
	s.evidence.prune(gone)
	s.telemetry.prune(gone)
}

// forget drops what is remembered of a node that left.
func (s *service) forget(uuid string) {
	s.infos.places.forget(uuid)
	s.models.places.forget(uuid)
	s.evidence.forget(uuid)
	s.telemetry.forget(uuid)
}

// localAddresses returns this machine's addresses that are worth publishing, best
// first.
func (s *service) localAddresses() ([]string, error) {
	all, err := localCandidates(s.clues())
	if err != nil {
		return nil, err
	}
	own := make(map[netip.Addr]bool, len(all))
	for _, c := range all {
		own[c.addr] = true
	}
	if len(s.interfaces) > 0 {
		all = slices.DeleteFunc(all, func(c candidate) bool { return !slices.Contains(s.interfaces, c.name) })
	}
	s.mu.Lock()
	s.own = own
	s.mu.Unlock()
	return rank(all), nil
}

func (s *service) clues() clues {
	k := clues{failing: make(map[int]bool), observed: make(map[string]bool), route: routeSource()}
	for _, l := range s.mdns.Links() {
		k.failing[l.Index] = l.FailedQueries >= sendFailures
	}
	s.mu.Lock()
	for _, a := range s.observed {
		k.observed[a] = true
	}
	own := s.own
	s.mu.Unlock()
	for _, n := range s.directory.nodes() {
		for _, ip := range n.IPs {
			if a, err := netip.ParseAddr(ip); err == nil && !own[a] {
				k.peers = append(k.peers, a)
			}
		}
	}
	return k
}

// sendFailures is how many questions in a row make an interface a failing one
// (DI-21).
const sendFailures = 3

// isOwn reports whether an address is this machine's: no other node is there.
func (s *service) isOwn(a netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return a.IsLoopback() || s.own[a]
}

// setObservedAddresses reports whether the set is another one.
func (s *service) setObservedAddresses(addrs []string) (changed bool) {
	addrs = slices.Sorted(slices.Values(slices.DeleteFunc(addrs, func(a string) bool { return a == "" })))
	addrs = slices.Compact(addrs)
	if len(addrs) > maxObserved {
		addrs = addrs[:maxObserved]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(addrs, s.observed) {
		return false
	}
	s.observed = addrs
	return true
}

const maxObserved = 256

func splitList(csv string) []string {
	var list []string
	for item := range strings.SplitSeq(csv, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}
