// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"nvpair/internal/jsonrpc"
	"nvpair/shared/discovery"
)

// fixLocked hands a node of this product to the scanner, which owns it from then on
// like one that was heard (DEC-65, DEC-118), or takes it back.
func (m *manualNodes) fixLocked(key string, entries []manualNode) {
	old, before := m.fixed[key]
	n, fixed := staticNode(entries)
	if before && !fixed && slices.ContainsFunc(entries, func(e manualNode) bool { return e.Peer }) {
		return // it does not answer just now; whether it lives is the scanner's to find out
	}
	switch {
	case fixed && !(before && reflect.DeepEqual(old, n)):
		m.fixed[key] = n
		m.tellScanner(discovery.MethodStaticNode, n)
	case !fixed && before:
		delete(m.fixed, key)
		m.tellScanner(discovery.MethodStaticNodeRemoved, discovery.StaticNode{HostUUID: old.HostUUID})
	}
}

// staticNode is the node of this product that the entries that answer lead to, with
// the addresses at which they did: the scanner takes no names.
func staticNode(entries []manualNode) (n discovery.StaticNode, ok bool) {
	for _, e := range entries {
		addresses := e.reachedAt()
		if !e.Peer || !e.NodeInfoUp || e.HostUUID == "" || len(addresses) == 0 {
			continue
		}
		if !ok {
			n = discovery.StaticNode{HostUUID: e.HostUUID, Name: cmp.Or(e.Name, e.ID), Services: make(map[string]discovery.Service)}
			for code, port := range e.Services {
				n.Services[code] = discovery.Service{Port: port}
			}
			if len(n.Services) == 0 { // it does not tell: our kind, at the usual ports
				n.Services[discovery.ServiceNodeInfo] = discovery.Service{Port: e.NodeInfoPort}
			}
		}
		for _, a := range addresses {
			if !slices.Contains(n.Addresses, a) {
				n.Addresses = append(n.Addresses, a)
			}
		}
		ok = true
	}
	return n, ok
}

// reachedAt returns where the node answered: what was typed, if that is an address
// and the worker does not tell. A link-local one of IPv6 means nothing without the
// interface that it is on.
func (n manualNode) reachedAt() []string {
	addresses := n.Addresses
	if len(addresses) == 0 {
		addresses = []string{n.Address}
	}
	return slices.DeleteFunc(slices.Clone(addresses), func(text string) bool {
		a, err := netip.ParseAddr(text)
		return err != nil || a.Zone() != "" || a.Is6() && a.IsLinkLocalUnicast()
	})
}

func (m *manualNodes) tellScanner(method string, n discovery.StaticNode) {
	if l := m.b.byName[workerScanner].current(); l != nil {
		m.tell(l, method, n)
	}
}

func (m *manualNodes) tell(l *workerLink, method string, n discovery.StaticNode) {
	l.conn.Start(method, encode(n), bridgeDeadline, func(r jsonrpc.Response) {
		if _, err := r.Decode(); err != nil {
			m.b.cfg.Log.Warn("scanner not told of a node", "node", n.HostUUID, "err", err)
		}
	})
}

// replayScanner tells a new scanner of all nodes of this product.
func (m *manualNodes) replayScanner(l *workerLink) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(m.fixed)) {
		m.tell(l, discovery.MethodStaticNode, m.fixed[key])
	}
}
