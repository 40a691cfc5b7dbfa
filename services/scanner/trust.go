// SPDX-License-Identifier: Apache-2.0

package scanner

import "nvpair/internal/appdir"

// refreshTrust looks at the cluster directory and brings up to date what follows from
// it (DI-104): this node's own entry and record, and who is trusted. It may be called
// at any time, and does nothing when nothing changed.
func (s *service) refreshTrust() {
	s.applying.Lock()
	defer s.applying.Unlock()
	state := s.trust.Refresh()
	if state == s.applied {
		return
	}
	s.applied = state
	s.models.reset()
	if s.self.setCluster(state.Self()) {
		s.log.Info("membership changed", "member", state.Clustered())
		if id, err := appdir.NodeID(s.base); err != nil {
			s.log.Warn("identity not reloaded", "err", err)
		} else {
			s.takeIdentity(id)
		}
	}
	s.directory.retrust(state)
	s.peers.keepMembers(s.members.of(state))
}

func (s *service) takeIdentity(id string) {
	if s.self.setIdentity(id) {
		s.log.Warn("identity changed", "node", id)
	}
}
