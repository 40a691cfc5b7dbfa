// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"context"
	"errors"
	"maps"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"nvpair/shared/discovery"
)

// Ages of evidence (DI-61), and what a probe may take (DI-62, DI-64).
const (
	inventoryFresh = 10 * time.Second
	activityFresh  = time.Minute
	probeTimeout   = time.Second
	// aliveTimeout bounds all that is tried to find a node alive: the others wait
	// for their turn.
	aliveTimeout = 3 * time.Second
)

// evidence is when nodes gave signs of life other than announcements.
type evidence struct {
	mu       sync.Mutex // guards the rest
	answered map[string]time.Time
	active   map[string]time.Time
}

func newEvidence() *evidence {
	return &evidence{answered: make(map[string]time.Time), active: make(map[string]time.Time)}
}

// answers says that a node's inventory came.
func (e *evidence) answers(uuid string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answered[uuid] = time.Now()
}

// serves says that a node's answer reached a client at that time (DI-98).
func (e *evidence) serves(uuid string, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if at.After(e.active[uuid]) {
		e.active[uuid] = at
	}
}

func (e *evidence) forget(uuid string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.answered, uuid)
	delete(e.active, uuid)
}

// prune forgets whoever is gone.
func (e *evidence) prune(gone func(uuid string) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range []map[string]time.Time{e.answered, e.active} {
		maps.DeleteFunc(m, func(uuid string, _ time.Time) bool { return gone(uuid) })
	}
}

func (e *evidence) vouches(uuid string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Since(e.answered[uuid]) < inventoryFresh || time.Since(e.active[uuid]) < activityFresh
}

// alive reports whether a node that is not heard lives: by evidence, else by
// whether its services take connections and it is itself who answers (DI-60 to
// DI-65).
func (s *service) alive(ctx context.Context, n discovery.DirectoryNode) bool {
	if s.evidence.vouches(n.HostUUID) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	if !s.connects(ctx, n) {
		return false
	}
	return !s.replacedBy(ctx, n)
}

// takesPart reports whether a node takes connections, and it is not known to be
// somebody else who does.
func (s *service) takesPart(ctx context.Context, n discovery.DirectoryNode) bool {
	return s.connects(ctx, n) && !s.replacedBy(ctx, n)
}

// replacedBy reports whether something else answers where a node was: another node, or
// a server that is no node at all, as a gateway that takes every connection. No answer
// proves nothing: the connection stands (DI-64).
func (s *service) replacedBy(ctx context.Context, n discovery.DirectoryNode) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err := s.infos.of(ctx, n)
	if errors.Is(err, errOther) {
		s.log.Warn("another node answers in a node's place", "node", n.HostUUID, "err", err)
	}
	return errors.Is(err, errOther) || errors.Is(err, errNoNode)
}

// probeable reports whether a node has anything to connect to.
func probeable(n discovery.DirectoryNode) bool {
	return len(n.IPs) > 0 && len(probePorts(n)) > 0
}

// probePorts are the ports a probe may connect to. Inference is not disturbed.
func probePorts(n discovery.DirectoryNode) []int {
	var ports []int
	for _, code := range []string{discovery.ServiceNodeInfo, discovery.ServiceEngines} {
		if s, ok := n.Services[code]; ok {
			ports = append(ports, s.Port)
		}
	}
	return ports
}

// connects reports whether any of the node's services takes a connection.
func (s *service) connects(ctx context.Context, n discovery.DirectoryNode) bool {
	for _, port := range probePorts(n) {
		var any atomic.Bool
		atOnce(len(n.IPs), len(n.IPs), func(i int) {
			if s.takes(ctx, net.JoinHostPort(n.IPs[i], strconv.Itoa(port))) {
				any.Store(true)
			}
		})
		if any.Load() {
			return true
		}
	}
	return false
}

func (s *service) takes(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := s.dial(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
