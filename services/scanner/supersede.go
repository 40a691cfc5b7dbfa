// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"errors"
	"time"

	"nvpair/shared/discovery"
)

// supersedeAge is by how much an entry must be older than the one that may replace
// it (DI-78).
const supersedeAge = 5 * time.Minute

// supersede looks for entries of the same machine from before it was set up anew:
// of the same name, under another uuid, and older. One is removed only on proof
// that it is no longer there and that another node is (DI-79): a record alone must
// never remove a node.
func (s *service) supersede(n discovery.DirectoryNode) {
	if n.Name == "" || n.IP == "" {
		return
	}
	for _, old := range s.directory.nodes() {
		if old.HostUUID == n.HostUUID || old.Name != n.Name || !older(old, n) || !s.replaced(old, n) {
			continue
		}
		now, still := s.directory.node(old.HostUUID)
		if !still || now.LastSeenSeconds != old.LastSeenSeconds || now.IP != old.IP || now.Name != old.Name {
			continue
		}
		s.log.Warn("node was set up anew under another identity, its old entry is removed", "node", old.HostUUID, "by", n.HostUUID)
		s.peers.drop(old.HostUUID)
	}
}

func older(old, n discovery.DirectoryNode) bool {
	return n.LastSeenSeconds-old.LastSeenSeconds >= int64(supersedeAge/time.Second)
}

// replaced reports whether the old node does not answer as itself at its own
// addresses, while somebody else answers at the new one's.
func (s *service) replaced(old, n discovery.DirectoryNode) bool {
	if old.Services[discovery.ServiceNodeInfo].Port == 0 {
		return false
	}
	if _, err := s.infos.of(s.ctx, old); err == nil {
		return false
	}
	asOld := n
	asOld.HostUUID = old.HostUUID // is it the old one that answers at the new addresses?
	_, err := s.infos.of(s.ctx, asOld)
	return errors.Is(err, errOther)
}

// drop removes a node from the outside.
func (p *peers) drop(uuid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropLocked(uuid)
}
