// SPDX-License-Identifier: Apache-2.0

package manualnodes

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	wire "nvpair/shared/manualnodes"
	"nvpair/shared/serviceerror"
)

const (
	// maxProbes is how many nodes are probed at once (MN-18).
	maxProbes = 8
	// reportAfter is how many probes in a row must have failed before a person is
	// told (MN-27).
	reportAfter = 3
	// reportSelfAfter is the same for a node that turns out to be this machine. A
	// client that takes such an addition back does so at once.
	reportSelfAfter = 2
)

// node is one node and what its probes found. service.mu guards it.
type node struct {
	saved  saved
	status wire.Status
	told   bool // node/discovered was sent; status is what was told last

	probing bool
	again   bool // a probe that began later was asked for
	cancel  context.CancelFunc
	moved   int // counts changes after which the outcome of an older probe means nothing

	probed, answered time.Time // ends of the last probe and of the last answered one

	failures int       // in a row
	since    time.Time // end of the first of them
	// mayStand: the store may hold a report about this node.
	reported, mayStand bool
	self               int  // probes in a row that found this machine itself
	peer               bool // it was one when it was last asked, or is not to be asked as anything else
}

// takeLocked makes a node what is said of it, starts a probe and returns its
// status. Who was told of the node stays told of it.
func (s *service) takeLocked(e saved) wire.Status {
	n := s.nodes[e.ID]
	if n == nil {
		n = &node{cancel: func() {}}
		s.nodes[e.ID] = n
	}
	status := statusOf(e)
	if (n.told || n.probing) && !samePlace(n.saved, e) { // begins anew (MN-9)
		n.moved++
		n.told = false
		n.cancel()
		if n.mayStand {
			s.emit(serviceerror.MethodClear, serviceerror.Clear{ID: wire.ErrorID(e.ID)})
		}
		n.probed, n.answered, n.failures, n.reported, n.mayStand, n.self = time.Time{}, time.Time{}, 0, false, false, 0
	}
	n.saved, n.peer = e, false
	if !n.told {
		n.status = status
	}
	s.probeLocked(n)
	status = n.status
	status.Name, status.Address, status.MTLSRequired = e.Name, e.Address, e.MTLS
	return status
}

// samePlace reports whether what a probe of one finds is true of the other.
func samePlace(a, b saved) bool {
	return canonical(a.Address) == canonical(b.Address) && a.TLSPort == b.TLSPort && portsOf(a) == portsOf(b)
}

func portsOf(e saved) wire.Ports {
	if e.Ports == nil {
		return wire.Ports{}
	}
	return *e.Ports
}

// statusOf is a node that was not probed yet.
func statusOf(e saved) wire.Status {
	p := portsOf(e)
	return wire.Status{
		ID: e.ID, Name: e.Name, Address: e.Address, Ports: e.Ports,
		OllamaPort: cmp.Or(p.Ollama, portOllama), LMStudioPort: cmp.Or(p.LMStudio, portLMStudio),
		NodeInfoPort: cmp.Or(e.TLSPort, p.NodeInfo, portNodeInfo),
		TLSEnabled:   e.TLSPort > 0, MTLSRequired: e.MTLS,
	}
}

// probeAll starts a probe of every node that is not being probed. It reports
// whether there are any nodes.
func (s *service) probeAll() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.nodes {
		if !n.probing {
			s.probeLocked(n)
		}
	}
	return len(s.nodes) > 0
}

// probeLocked starts a probe; while one runs, another will follow it.
func (s *service) probeLocked(n *node) {
	if n.probing {
		n.again = true
		return
	}
	n.probing = true
	ctx, cancel := context.WithCancel(s.ctx)
	n.cancel = cancel
	s.probes.Go(func() {
		for s.probeOnce(ctx, n) {
			cancel()
			ctx, cancel = s.renew(n)
		}
		cancel()
	})
}

// renew gives the next probe of a node its own context.
func (s *service) renew(n *node) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(s.ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	n.cancel = cancel
	return ctx, cancel
}

// probeOnce probes a node when it is its turn. It reports whether another probe
// is to follow at once.
func (s *service) probeOnce(ctx context.Context, n *node) (again bool) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
	}
	s.mu.Lock()
	e, moved, wasPeer, present := n.saved, n.moved, n.peer, s.nodes[n.saved.ID] == n
	target := statusOf(e)
	target.Addresses = n.status.Addresses
	s.mu.Unlock()
	var f findings
	if present && ctx.Err() == nil {
		f = s.prober.probe(ctx, target, wasPeer, s.self)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	present = s.nodes[e.ID] == n
	if present && n.moved == moved && ctx.Err() == nil {
		s.foundLocked(n, f)
	}
	again = present && n.again && s.ctx.Err() == nil
	n.again, n.probing = false, again
	return again
}

// foundLocked takes the outcome of a probe and tells what is new.
func (s *service) foundLocked(n *node, f findings) {
	next := statusOf(n.saved)
	f.into(&next)
	next.HostUUID = cmp.Or(next.HostUUID, n.status.HostUUID) // MN-15
	n.probed = time.Now()
	n.peer = f.peer && !n.again // an addition meanwhile asks for a fresh look
	old, told := n.status, n.told
	n.status, n.told = next, true
	s.judgeLocked(n)
	switch {
	case !told:
		s.logFound(&next)
		s.emit(wire.NotifyDiscovered, next)
	case differs(&old, &next):
		if old.Error != next.Error || reachable(&old) != reachable(&next) {
			s.logFound(&next)
		}
		s.emit(wire.NotifyUpdated, next)
	}
}

func (s *service) logFound(st *wire.Status) {
	s.log.Info("node probed", "node", st.ID, "addr", st.Address, "ollama", st.OllamaUp, "lmstudio", st.LMStudioUp,
		"node_info", st.NodeInfoUp, "models", len(st.OllamaModels)+len(st.LMStudioModels), "err", st.Error)
}

func reachable(st *wire.Status) bool { return st.OllamaUp || st.LMStudioUp || st.NodeInfoUp } // MN-20

// differs reports whether a status is worth an update (MN-21). Besides what a
// probe finds that is what a later addition changed.
func differs(a, b *wire.Status) bool {
	return a.OllamaUp != b.OllamaUp || a.LMStudioUp != b.LMStudioUp || a.NodeInfoUp != b.NodeInfoUp ||
		a.HostUUID != b.HostUUID || a.TelemetryValid != b.TelemetryValid || a.AgeMillis != b.AgeMillis ||
		a.Name != b.Name || a.Address != b.Address || a.MTLSRequired != b.MTLSRequired ||
		a.Peer != b.Peer || a.Local != b.Local || a.Error != b.Error ||
		!slices.Equal(a.OllamaModels, b.OllamaModels) || !slices.Equal(a.LMStudioModels, b.LMStudioModels) ||
		!maps.Equal(a.Services, b.Services) || !slices.Equal(a.Addresses, b.Addresses) ||
		!bytes.Equal(a.GPUs, b.GPUs) || !bytes.Equal(a.CPU, b.CPU) || !bytes.Equal(a.Memory, b.Memory)
}

// judgeLocked tells a person of a node that stays silent or is this machine itself,
// and when that is over.
func (s *service) judgeLocked(n *node) {
	if n.status.Error == errSelf {
		n.answered, n.failures = n.probed, 0
		if n.self++; n.self == reportSelfAfter {
			s.reportLocked(n, selfText(n))
		}
		return
	}
	if n.self >= reportSelfAfter {
		n.reported = false // what comes next is another matter
	}
	n.self = 0
	if reachable(&n.status) || n.status.Local {
		n.answered, n.failures, n.reported = n.probed, 0, false
		if n.mayStand {
			n.mayStand = false
			s.emit(serviceerror.MethodClear, serviceerror.Clear{ID: wire.ErrorID(n.saved.ID)})
		}
		return
	}
	if n.failures++; n.failures == 1 {
		n.since = n.probed
	}
	if n.failures < reportAfter || n.reported {
		return
	}
	s.reportLocked(n, silentText(n, time.Since(n.since)))
}

func (s *service) reportLocked(n *node, text string) {
	n.reported, n.mayStand = true, true
	s.emit(serviceerror.MethodReport, serviceerror.ServiceError{
		ID: wire.ErrorID(n.saved.ID), Message: text,
		Severity: serviceerror.SeverityWarning, Action: serviceerror.ActionNone,
	})
}

// silentText says what is known and what to do (MN-28).
func silentText(n *node, silent time.Duration) string {
	text := fmt.Sprintf("Node %s at %s has not answered for %v: %s.",
		cmp.Or(n.saved.Name, n.saved.ID), n.saved.Address, silent.Round(time.Second), n.status.Error)
	if _, err := netip.ParseAddr(n.saved.Address); err == nil {
		text += " If its address has changed, add it again by the current one, or better by its host name."
	}
	return text
}

func selfText(n *node) string {
	return fmt.Sprintf("Node %s at %s is not used: %s. Remove it, or add it again by the address of the machine that is meant.",
		cmp.Or(n.saved.Name, n.saved.ID), n.saved.Address, n.status.Error)
}
