// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"nvpair/internal/clustertrust"
	"nvpair/shared/discovery"
)

// directory holds the other nodes as the broker knows them. Events are queued under
// its lock, so that they leave in the order of the changes.
type directory struct {
	emit func(method string, params any) // must not wait

	mu      sync.Mutex // guards the rest
	entries map[string]*entry
	trust   *clustertrust.State
}

// entry is one node.
type entry struct {
	node    discovery.DirectoryNode
	ranked  []string // its addresses in its own order
	at      string   // of them, the one at which it proved to be itself last
	entered time.Time
	claimed string // cluster uuid of its record; its node-info's word counts for more
	proven  bool   // its node-info answered under its uuid
	static  string // of its hardware
}

func newDirectory(emit func(string, any)) *directory {
	return &directory{emit: emit, entries: make(map[string]*entry), trust: new(clustertrust.State)}
}

// put takes what a record says of a node. What was learned otherwise stays. It
// reports whether that is a change.
func (d *directory) put(n discovery.DirectoryNode) (changed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, known := d.entries[n.HostUUID]
	if !known {
		e = &entry{node: n, ranked: n.IPs, entered: time.Now(), claimed: n.ClusterUUID, static: staticOf(nil, nil, nil)}
		d.judgeLocked(&e.node)
		d.entries[n.HostUUID] = e
		d.tellLocked(discovery.NotifyNodeDiscovered, e)
		return true
	}
	old := &e.node
	if old.Name == n.Name && slices.Equal(e.ranked, n.IPs) && maps.Equal(old.Services, n.Services) && e.claimed == n.ClusterUUID {
		return false
	}
	old.Name, old.Services, e.ranked = n.Name, n.Services, n.IPs
	e.orderLocked()
	if e.claimed != n.ClusterUUID {
		e.claimed, old.ClusterUUID = n.ClusterUUID, n.ClusterUUID
		d.judgeLocked(old)
	}
	d.tellLocked(discovery.NotifyNodeUpdated, e)
	return true
}

// learn applies what a node's own node-info said. One updated event follows if
// that is news: use of the hardware alone is none (DI-92).
func (d *directory) learn(uuid string, i inventory) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entries[uuid]
	if e == nil {
		return
	}
	n := &e.node
	var moved bool
	if i.hostUUID == uuid { // one that does not say who it is proves nothing
		e.at = i.at
		e.proven = e.proven || d.provenAtLocked(e.at) < maxProvenAt
		moved = e.orderLocked()
	}
	cluster := n.ClusterUUID
	if i.clusterUUID != nil {
		cluster = *i.clusterUUID
	}
	same := !moved && cluster == n.ClusterUUID && i.static == e.static
	e.static = i.static
	n.ClusterUUID, n.GPUs, n.CPU, n.Memory = cluster, i.gpus, i.cpu, i.memory
	d.judgeLocked(n)
	if !same {
		d.tellLocked(discovery.NotifyNodeUpdated, e)
	}
}

// orderLocked puts the address in front at which the node proved to be itself: a
// record alone must not send everybody to another one first. The others stay in the
// node's own order (DI-29). It reports whether that is a change.
func (e *entry) orderLocked() (changed bool) {
	ips := e.ranked
	if len(ips) > 0 && ips[0] != e.at && slices.Contains(ips, e.at) {
		ips = append([]string{e.at}, slices.DeleteFunc(slices.Clone(ips), func(ip string) bool { return ip == e.at })...)
	}
	changed = !slices.Equal(ips, e.node.IPs)
	e.node.IPs, e.node.IP = ips, ""
	if len(ips) > 0 {
		e.node.IP = ips[0]
	}
	return changed
}

// preferred returns the first of a node's addresses in its own order, if it proved
// to be itself at another one.
func (d *directory) preferred(uuid string) (ip string, other bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entries[uuid]
	if e == nil || e.at == "" || len(e.ranked) == 0 || e.ranked[0] == e.at {
		return "", false
	}
	return e.ranked[0], true
}

// inUse is a node with the one address at which it proved to be itself, if there is
// one.
func (d *directory) inUse(n discovery.DirectoryNode) discovery.DirectoryNode {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.entries[n.HostUUID]; e != nil && e.at != "" && len(n.IPs) > 0 {
		n.IP, n.IPs = e.at, []string{e.at}
	}
	return n
}

// learnModels applies what a node's engine manager said, unless the node was
// somewhere else by then (DI-90).
func (d *directory) learnModels(asked discovery.DirectoryNode, l modelList) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entries[asked.HostUUID]
	if e == nil {
		return
	}
	n := &e.node
	moved := n.IP != asked.IP || n.ClusterUUID != asked.ClusterUUID || !n.Trusted ||
		n.Services[discovery.ServiceEngines] != asked.Services[discovery.ServiceEngines]
	if moved || l.same(modelList{n.Models, n.ModelsByEngine, n.LoadedByEngine}) && n.Models != nil {
		return
	}
	n.Models, n.ModelsByEngine, n.LoadedByEngine = l.Models, l.By, l.Loaded
	d.tellLocked(discovery.NotifyNodeUpdated, e)
}

// retrust judges all nodes anew, with one updated event for each that changed
// (DI-104).
func (d *directory) retrust(state *clustertrust.State) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.trust = state
	for _, uuid := range slices.Sorted(maps.Keys(d.entries)) {
		if e := d.entries[uuid]; d.judgeLocked(&e.node) {
			d.tellLocked(discovery.NotifyNodeUpdated, e)
		}
	}
}

// judgeLocked says whether a node is trusted, by pins alone, never by what it says
// (DI-106). What only a member may tell does not stay of one that is none any more.
func (d *directory) judgeLocked(n *discovery.DirectoryNode) (changed bool) {
	before := n.Trusted
	n.Trusted = d.trust.Trusts(n.ClusterUUID)
	if before && !n.Trusted {
		n.Models, n.ModelsByEngine, n.LoadedByEngine = nil, nil, nil
	}
	return n.Trusted != before
}

// trustedAndProven returns the members that answered under their uuid.
func (d *directory) trustedAndProven() []discovery.DirectoryNode {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []discovery.DirectoryNode
	for _, e := range d.entries {
		if e.proven && e.node.Trusted {
			list = append(list, e.node)
		}
	}
	return list
}

// maxProvenAt is how many nodes can prove themselves at one address. A few lie behind
// one router with forwarded ports; one machine that is many nodes fills the directory.
const maxProvenAt = 8

func (d *directory) provenAtLocked(ip string) int {
	n := 0
	for _, e := range d.entries {
		if e.proven && e.at == ip {
			n++
		}
	}
	return n
}

// isProven reports whether a node ever answered under its uuid.
func (d *directory) isProven(uuid string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entries[uuid]
	return e != nil && e.proven
}

// remove drops a node, with an event if it was there.
func (d *directory) remove(uuid string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.entries[uuid]; e != nil {
		delete(d.entries, uuid)
		d.emit(discovery.NotifyNodeRemoved, discovery.NodeEvent{Node: e.node})
	}
}

// tellLocked stamps a change and tells it.
func (d *directory) tellLocked(method string, e *entry) {
	e.node.LastSeenSeconds = time.Now().Unix()
	d.emit(method, discovery.NodeEvent{Node: e.node})
}

// node returns a node as it is now.
func (d *directory) node(uuid string) (discovery.DirectoryNode, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entries[uuid]
	if e == nil {
		return discovery.DirectoryNode{}, false
	}
	return e.node, true
}

// nodes returns all, by uuid (DI-74).
func (d *directory) nodes() []discovery.DirectoryNode {
	d.mu.Lock()
	list := make([]discovery.DirectoryNode, 0, len(d.entries))
	for _, e := range d.entries {
		list = append(list, e.node)
	}
	d.mu.Unlock()
	slices.SortFunc(list, func(a, b discovery.DirectoryNode) int { return cmp.Compare(a.HostUUID, b.HostUUID) })
	return list
}

// unproven returns the nodes of at least that age that never answered under their
// uuid.
func (d *directory) unproven(age time.Duration) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []string
	for uuid, e := range d.entries {
		if !e.proven && time.Since(e.entered) >= age {
			list = append(list, uuid)
		}
	}
	return list
}

// staticOf is what of a node's hardware does not change from second to second.
func staticOf(gpus, cpu, memory json.RawMessage) string {
	var g []struct {
		Name string `json:"name"`
		VRAM uint64 `json:"vram_bytes"`
	}
	var c struct {
		Name  string `json:"name"`
		Cores uint32 `json:"cores"`
	}
	var m struct {
		Total uint64 `json:"total_bytes"`
	}
	for _, part := range []struct {
		raw  json.RawMessage
		into any
	}{{gpus, &g}, {cpu, &c}, {memory, &m}} {
		if len(part.raw) > 0 {
			_ = json.Unmarshal(part.raw, part.into) // what does not decode has no static part
		}
	}
	b, err := json.Marshal([]any{g, c, m, len(cpu) > 0, len(memory) > 0})
	if err != nil {
		panic(err) // texts and numbers always encode
	}
	return string(bytes.TrimSpace(b))
}
