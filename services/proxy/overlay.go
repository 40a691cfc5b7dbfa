// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"nvpair/services/proxy/dialect"
	"nvpair/services/proxy/route"
	"nvpair/shared/discovery"
	"nvpair/shared/facade"
)

// overlay is what a facade knows of nodes: the relay's directory, nodes added by
// hand, and this machine's own engine. The facade's lock guards it.
type overlay struct {
	relay  map[string]discovery.DirectoryNode // by host uuid; with this engine's service only
	manual map[string]facade.Node             // by id
	pin    string                             // node selected by the client, "" for automatic

	backend   string   // host:port of the own engine, "" while there is none
	inventory []string // keys of the own engine's models, as it told itself
}

// replaceRelay takes a new directory and returns what changed for the client.
func (o *overlay) replaceRelay(key string, nodes []discovery.DirectoryNode) (added, updated, removed []facade.Node) {
	next := make(map[string]discovery.DirectoryNode)
	for _, n := range nodes {
		if s, ok := n.Services[key]; ok && s.Port > 0 && n.IP != "" && n.HostUUID != "" {
			next[n.HostUUID] = n
		}
	}
	for id, n := range next {
		old, known := o.relay[id]
		switch {
		case !known:
			added = append(added, relayNode(key, n))
		case !sameNode(relayNode(key, old), relayNode(key, n)):
			updated = append(updated, relayNode(key, n))
		}
	}
	for id, n := range o.relay {
		if _, still := next[id]; !still {
			removed = append(removed, relayNode(key, n))
		}
	}
	o.relay = next
	return added, updated, removed
}

// relayNode is a directory entry as the client sees it (PX-31).
func relayNode(key string, n discovery.DirectoryNode) facade.Node {
	addresses := n.IPs
	if len(addresses) == 0 {
		addresses = []string{n.IP}
	}
	return facade.Node{
		ID: n.HostUUID, Host: n.Name, Port: n.Services[key].Port, IP: n.IP,
		Addresses: addresses, TXT: []string{}, Models: n.Models,
	}
}

func sameNode(a, b facade.Node) bool {
	return a.Host == b.Host && a.Port == b.Port && a.IP == b.IP &&
		slices.Equal(a.Addresses, b.Addresses) && slices.Equal(a.Models, b.Models)
}

// list returns all nodes, sorted by id; of two with one id the relay's counts.
func (o *overlay) list(key string) []facade.Node {
	all := maps.Clone(o.manual)
	if all == nil {
		all = make(map[string]facade.Node)
	}
	for id, n := range o.relay {
		all[id] = relayNode(key, n)
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
// for the own engine, with or without a record; other relayed nodes need a pin,
// and there are none before a cluster exists.
func (f *facadeState) routable() []route.Node {
	o := &f.overlay
	var nodes []route.Node
	if o.backend != "" && f.hostUUID != "" {
		nodes = append(nodes, route.Node{
			ID: f.hostUUID, Own: true, Trust: true, Addrs: []string{o.backend}, Models: f.ownModels(o.relay[f.hostUUID]),
		})
	}
	for id, n := range o.relay {
		if o.backend != "" && f.hostUUID == "" && f.isSelf(n) {
			nodes = append(nodes, route.Node{
				ID: id, Own: true, Trust: true, Addrs: []string{o.backend}, Models: f.ownModels(n),
			})
		}
	}
	for id, n := range o.manual {
		if _, relayed := o.relay[id]; relayed {
			continue
		}
		if addrs := f.manualAddrs(n); len(addrs) > 0 {
			nodes = append(nodes, route.Node{ID: id, Addrs: addrs, Models: f.keys(n.Models)})
		}
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
		if f.local(ip) {
			return true
		}
	}
	return false
}

// manualAddrs are a manual node's addresses without the facade's own listener: a
// request must not come back to where it is.
func (f *facadeState) manualAddrs(n facade.Node) []string {
	var addrs []string
	for _, host := range n.Addresses {
		if f.local(host) && n.Port == f.port {
			continue
		}
		addrs = append(addrs, net.JoinHostPort(host, strconv.Itoa(n.Port)))
	}
	return addrs
}

// ownModels are the own engine's models: what it told itself, else what the
// directory says of it.
func (f *facadeState) ownModels(n discovery.DirectoryNode) []string {
	if f.overlay.inventory != nil {
		return f.overlay.inventory
	}
	if n.ModelsByEngine != nil {
		return f.keys(n.ModelsByEngine[f.engine.ID])
	}
	return f.keys(n.Models)
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

// localAddresses returns a test for addresses of this machine.
func localAddresses() func(string) bool {
	own := make(map[netip.Addr]bool)
	if addrs, err := net.InterfaceAddrs(); err == nil {
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				own[p.Addr().Unmap()] = true
			}
		}
	}
	return func(host string) bool {
		if host == "localhost" {
			return true
		}
		a, err := netip.ParseAddr(host)
		return err == nil && (a.Unmap().IsLoopback() || own[a.Unmap()])
	}
}
