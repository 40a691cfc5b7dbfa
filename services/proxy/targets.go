// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"nvpair/internal/upstream"
	"nvpair/internal/worker"
	"nvpair/services/proxy/route"
)

const (
	// confirmTimeout bounds the try of one address of a node.
	confirmTimeout = 2 * time.Second
	// confirmEvery is how long a node whose addresses all failed is left alone.
	confirmEvery = 5 * time.Second
)

// targets knows how nodes are reached: over which connections, and at which of
// their addresses.
type targets struct {
	ctx     context.Context // ends with the worker
	serving *worker.Group   // waits for the confirmations
	plain   *upstream.Pool  // own engines and nodes given by address

	mu     sync.Mutex         // guards choices
	choice map[string]*choice // by node id; of nodes with several addresses only
}

// choice is which of a node's addresses is used.
type choice struct {
	addrs     []string  // it was made among these
	confirmed string    // "" while none is known to answer
	checking  bool      // a check runs
	checked   time.Time // end of the last check
}

// pool returns the connections to a node.
//
// This is the seam for peers: a member of the cluster is reached over mutual TLS
// through a pool of its own, whose every dial fails once its pin is gone, and
// never in plaintext (PX-72). Until clusters exist no such node is routed to.
func (t *targets) pool(*route.Node) *upstream.Pool { return t.plain }

// address returns where to reach a node. It never waits: until one of several
// addresses is confirmed it is the first, and a check runs beside (PX-53).
func (t *targets) address(n *route.Node) string {
	if len(n.Addrs) == 1 {
		return n.Addrs[0]
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.choice[n.ID]
	if c == nil || !slices.Equal(c.addrs, n.Addrs) {
		if len(t.choice) >= maxRememberedNodes {
			clear(t.choice)
		}
		c = &choice{addrs: n.Addrs}
		t.choice[n.ID] = c
	}
	if c.confirmed != "" {
		return c.confirmed
	}
	if !c.checking && time.Since(c.checked) >= confirmEvery {
		c.checking = true
		t.serving.Go(func() { t.confirm(c) })
	}
	return n.Addrs[0]
}

// confirm looks for the first address that takes a connection.
func (t *targets) confirm(c *choice) {
	found := ""
	dialer := net.Dialer{Timeout: confirmTimeout}
	for _, addr := range c.addrs { // fixed once c exists
		conn, err := dialer.DialContext(t.ctx, "tcp", addr)
		if err == nil {
			_ = conn.Close()
			found = addr
			break
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c.confirmed, c.checking, c.checked = found, false, time.Now()
}

// failed forgets what is known of an address at which a node was not reached, so
// that the next request finds out anew (PX-66).
func (t *targets) failed(n *route.Node, addr string) {
	t.pool(n).Drop(addr)
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.choice[n.ID]; c != nil && c.confirmed == addr {
		c.confirmed, c.checked = "", time.Time{}
	}
}

// maxRememberedNodes bounds what is remembered by node id; past it everything is
// found out anew.
const maxRememberedNodes = 1024
