// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"sync"

	"nvpair/internal/clustertrust"
	"nvpair/shared/nodeinfo"
)

// membership tells node-info in which cluster this node is (BR-72): its principal by
// its own certificate, or "" for none, which is never left out.
type membership struct {
	b     *Broker
	trust *clustertrust.View

	mu   sync.Mutex // guards told; held over a look at the directory and a notification, which only queues, to keep the order
	told *string    // what the running node-info knows; nil when that is not known
}

// spawned tells a new node-info.
func (m *membership) spawned(l *workerLink) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tellLocked(l, m.trust.Refresh().Self())
}

// changed looks whether there is something to tell.
func (m *membership) changed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if self := m.trust.Refresh().Self(); m.told == nil || self != *m.told {
		if l := m.b.byName[workerNodeInfo].current(); l != nil {
			m.tellLocked(l, self)
		}
	}
}

func (m *membership) tellLocked(l *workerLink, principal string) {
	m.told = nil
	if err := l.conn.Notify(nodeinfo.MethodSetClusterIdentity, nodeinfo.ClusterIdentity{ClusterUUID: &principal}); err != nil {
		m.b.cfg.Log.Debug("cluster identity not told", "worker", workerNodeInfo, "err", err)
		return
	}
	m.told = &principal
}
