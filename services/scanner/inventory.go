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
// returns at once.
func (s *service) fresh(n discovery.DirectoryNode) {
	s.mu.Lock()
	busy := s.asking[n.HostUUID]
	s.asking[n.HostUUID] = true
	s.mu.Unlock()
	if busy || s.ctx.Err() != nil {
		return // asked anew by the next sweep
	}
	s.running.Go(func() {
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.asking, n.HostUUID)
		}()
		s.enrich(s.ctx, n)
		s.supersede(n)
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
	s.directory.learn(n.HostUUID, got)
}

// refreshInventories asks all nodes (DI-89, DI-92).
func (s *service) refreshInventories(ctx context.Context) {
	nodes := slices.DeleteFunc(s.directory.nodes(), func(n discovery.DirectoryNode) bool {
		return n.Services[discovery.ServiceNodeInfo].Port == 0
	})
	atOnce(len(nodes), inventoriesAtOnce, func(i int) { s.enrich(ctx, nodes[i]) })
}

// forget drops what is remembered of a node that left.
func (s *service) forget(uuid string) {
	s.infos.forget(uuid)
	s.evidence.forget(uuid)
	s.telemetry.forget(uuid)
}

// localAddresses returns this machine's addresses that are worth publishing, best
// first.
func (s *service) localAddresses() ([]string, error) {
	all, err := localCandidates(s.interfaces, s.clues())
	if err != nil {
		return nil, err
	}
	own := make(map[netip.Addr]bool, len(all))
	for _, c := range all {
		own[c.addr] = true
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
