// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"sync"
	"time"

	"nvpair/internal/worker"
	"nvpair/shared/discovery"
	"nvpair/shared/facade"
)

// activityEvery is how often one node's activity is worth a word (PX-85).
const activityEvery = 2 * time.Second

// activity tells the broker which nodes are serving, which is better evidence of
// their life than any probe.
type activity struct {
	link *worker.Link

	mu   sync.Mutex           // guards last
	last map[string]time.Time // report by node
}

func (a *activity) init(l *worker.Link) {
	a.link, a.last = l, make(map[string]time.Time)
}

// seen says that bytes of a node's answer reached a client.
func (a *activity) seen(node string) {
	now := time.Now()
	a.mu.Lock()
	recent := now.Sub(a.last[node]) < activityEvery
	if !recent {
		a.last[node] = now
		if len(a.last) > maxActivityNodes {
			clear(a.last) // at worst some nodes are reported again early
		}
	}
	a.mu.Unlock()
	if !recent {
		_ = a.link.Notify(facade.NotifyNodeActivity, discovery.Activity{HostUUID: node}) // repeated soon
	}
}

const maxActivityNodes = 1024
