// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"nvpair/services/proxy/dialect"
	"nvpair/services/proxy/route"
	"nvpair/shared/discovery"
	"nvpair/shared/engine"
	"nvpair/shared/facade"
)

// overlay is what a facade knows of nodes: the relay's directory, nodes added by
// hand, and this machine's own engine. The facade's lock guards it.
type overlay struct {
	relay  map[string]discovery.DirectoryNode // by host uuid; with this engine's service only
	manual map[string]facade.Node             // by id
	pin    string                             // node selected by the client, "" for automatic

	backends  []string            // host:port of the own engines, the main one first; replaced, never changed
	inventory map[string][]string // keys of their models by host:port, as they told; missing = not yet
}

// replaceRelay takes a new directory and returns what changed for the client.
func (o *overlay) replaceRelay(e engine.Engine, nodes []discovery.DirectoryNode) (added, updated, removed []facade.Node) {
	next := make(map[string]discovery.DirectoryNode)
	for _, n := range nodes {
		if s, ok := n.Services[e.ServiceKey]; ok && s.Port > 0 && n.IP != "" && n.HostUUID != "" {
			next[n.HostUUID] = n
		}
	}
	for id, n := range next {
		old, known := o.relay[id]
		switch {
		case !known:
			added = append(added, relayNode(e, n))
		case !sameNode(relayNode(e, old), relayNode(e, n)):
			updated = append(updated, relayNode(e, n))
		}
	}
	for id, n := range o.relay {
		if _, still := next[id]; !still {
			removed = append(removed, relayNode(e, n))
		}
	}
	o.relay = next
	return added, updated, removed
}

// relayNode is a directory entry as the client sees it (PX-31).
func relayNode(e engine.Engine, n discovery.DirectoryNode) facade.Node {
	addresses, txt := n.IPs, []string{"ip=" + n.IP}
	if len(addresses) == 0 {
		addresses = []string{n.IP}
	} else if len(addresses) > 1 {
		txt = append(txt, "ips="+strings.Join(addresses, ","))
	}
	return facade.Node{
		ID: n.HostUUID, Host: n.Name, Port: n.Services[e.ServiceKey].Port, IP: n.IP,
		Addresses: addresses, TXT: txt, Models: modelsOf(e, n),
	}
}

// modelsOf are a relayed node's models for an engine: another engine's never make
// an owner (PX-31).
func modelsOf(e engine.Engine, n discovery.DirectoryNode) []string {
	if n.ModelsByEngine != nil {
		return n.ModelsByEngine[e.ID]
	}
	return n.Models
}

func sameNode(a, b facade.Node) bool {
	return a.Host == b.Host && a.Port == b.Port && a.IP == b.IP &&
		slices.Equal(a.Addresses, b.Addresses) && slices.Equal(a.Models, b.Models)
}

// list returns all nodes, sorted by id; of two with one id the relay's counts.
func (o *overlay) list(e engine.Engine) []facade.Node {
	all := maps.Clone(o.manual)
	if all == nil {
		all = make(map[string]facade.Node)
	}
	for id, n := range o.relay {
		all[id] = relayNode(e, n)
	}
	nodes := make([]facade.Node, 0, len(all))
	for _, id := range slices.Sorted(maps.Keys(all)) {
		nodes = append(nodes, all[id])
	}
	return nodes
}

func (o *overlay) has(id string) bool {
	_, relayed := o.relay[id]
	_, manual := o.manual[id]
	return relayed || manual
}

// routable resolves the nodes to what can be dialled (PX-50). This machine stands
// for the own engine, with or without a record. Other relayed nodes need a pin, and
// there are none before a cluster exists; a record that nobody vouches for does not
// take the place of a node that the user gave.
func (f *facadeState) routable() []route.Node {
	o := &f.overlay
	var nodes []route.Node
	if f.hostUUID != "" {
		nodes = f.ownNodes(f.hostUUID, o.relay[f.hostUUID])
	}
	for id, n := range o.relay {
		if f.hostUUID == "" && f.isSelf(n) {
			nodes = append(nodes, f.ownNodes(id, n)...)
		}
	}
	for id, n := range o.manual {
		if id == f.hostUUID && len(o.backends) > 0 {
			continue // this machine is its own engines
		}
		if addrs := f.manualAddrs(n); len(addrs) > 0 {
			nodes = append(nodes, route.Node{ID: id, Addrs: addrs, Models: f.keys(n.Models)})
		}
	}
	return nodes
}

// ownNodes are the targets on this machine: one for each engine, all under the
// machine's id (DEC-132).
func (f *facadeState) ownNodes(id string, record discovery.DirectoryNode) []route.Node {
	var nodes []route.Node
	for i, addr := range f.overlay.backends {
		models, told := f.overlay.inventory[addr]
		if !told && i == 0 { // the directory speaks of the main engine
			models = f.keys(modelsOf(f.engine, record))
		}
		nodes = append(nodes, route.Node{ID: id, Own: true, Trust: true, Addrs: []string{addr}, Models: models})
	}
	return nodes
}

// isSelf reports whether a relayed node is this machine, where the broker did not
// say which one is: it names this facade's port at an address of ours.
func (f *facadeState) isSelf(n discovery.DirectoryNode) bool {
	if n.Services[f.engine.ServiceKey].Port != f.port {
		return false
	}
	for _, ip := range append(slices.Clone(n.IPs), n.IP) {
		if f.here.isLocal(ip) {
			return true
		}
	}
	return false
}

// manualAddrs are a manual node's addresses without those at which a facade of ours
// listens: a request must not come back to where it is, in whatever circle.
func (f *facadeState) manualAddrs(n facade.Node) []string {
	var addrs []string
	for _, host := range n.Addresses {
		own := f.here.isLocal(host)
		if own && !isLoopback(host) {
			host = "127.0.0.1"
		}
		addr := net.JoinHostPort(host, strconv.Itoa(n.Port))
		switch {
		case f.here.listens(host, n.Port), slices.Contains(addrs, addr):
		case own: // without the way over the network, so first (PX-52)
			addrs = slices.Insert(addrs, 0, addr)
		default:
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

func (f *facadeState) keys(models []string) []string {
	keys := make([]string, 0, len(models))
	for _, m := range models {
		if k := dialect.Key(f.engine.ID, m); k != "" {
			keys = append(keys, k)
		}
	}
	return keys
}
