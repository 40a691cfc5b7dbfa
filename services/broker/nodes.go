// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"encoding/json"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"nvpair/internal/jsonrpc"
	"nvpair/shared/discovery"
)

// maxNodes bounds the directory (DEC-116).
const maxNodes = 512

// nodeStore is the merged view of all nodes (BR section 7). Two sources claim
// records: the scanner, whose view counts where it has one, and the worker
// manual-nodes. A record disappears with its last claim.
type nodeStore struct {
	log     *slog.Logger
	changed func() // called after each mutation, outside the lock
	// unheard and lost, if set, are called outside the lock after changed: the one
	// when the scanner's claim on a node is gone, the other when its last claim is.
	// Set them before the first node comes.
	unheard, lost func(discovery.DirectoryNode)

	mu      sync.Mutex // guards records
	records map[string]nodeRecord
}

// nodeRecord is one node, keyed by its host uuid, or what stands for it while a
// manual node has not told one.
type nodeRecord struct {
	scanner    *discovery.DirectoryNode // nil without a claim
	generation int                      // of the scanner process that announced it last
	manual     *discovery.AvailableNode // nil without a claim; its lastSeen does not count
	lastSeen   int64
}

func newNodeStore(log *slog.Logger, changed func()) *nodeStore {
	return &nodeStore{log: log, changed: changed, records: make(map[string]nodeRecord)}
}

func (s *nodeStore) upsert(n discovery.DirectoryNode, generation int) {
	s.claim(n.HostUUID, n.Name, func(r *nodeRecord) { r.scanner, r.generation = &n, generation })
}

// upsertManual is upsert for the other source.
func (s *nodeStore) upsertManual(key string, n discovery.AvailableNode) {
	s.claim(key, n.Name, func(r *nodeRecord) { r.manual = &n })
}

func (s *nodeStore) claim(key, name string, set func(*nodeRecord)) {
	if key == "" {
		s.log.Warn("node without a host uuid ignored", "node", name)
		return
	}
	s.mu.Lock()
	r, known := s.records[key]
	full := !known && len(s.records) >= maxNodes
	if !full {
		set(&r)
		r.lastSeen = time.Now().Unix()
		s.records[key] = r
	}
	s.mu.Unlock()
	if full {
		s.log.Warn("directory is full, node ignored", "node", key, "limit", maxNodes)
		return
	}
	s.changed()
}

// remove drops the scanner's claim; one that is not held is no event (BR-37).
func (s *nodeStore) remove(hostUUID string) { s.removeOlder(hostUUID, math.MaxInt) }

// removeOlder drops a claim unless a scanner from that generation on made it.
func (s *nodeStore) removeOlder(hostUUID string, generation int) {
	s.unclaim(hostUUID, s.unheard, func(r *nodeRecord) bool {
		held := r.scanner != nil && r.generation < generation
		if held {
			r.scanner = nil
		}
		return held
	})
}

// removeManual drops the other source's claim.
func (s *nodeStore) removeManual(key string) {
	s.unclaim(key, nil, func(r *nodeRecord) bool {
		held := r.manual != nil
		r.manual = nil
		return held
	})
}

// unclaim lets drop take a claim off a record. It is to report whether there was
// one.
func (s *nodeStore) unclaim(key string, dropped func(discovery.DirectoryNode), drop func(*nodeRecord) bool) {
	s.mu.Lock()
	r := s.records[key]
	before := r.identity(key)
	held := drop(&r)
	last := held && r.scanner == nil && r.manual == nil
	switch {
	case last:
		delete(s.records, key)
	case held:
		r.lastSeen = time.Now().Unix() // BR-36
		s.records[key] = r
	}
	s.mu.Unlock()
	if !held {
		return
	}
	s.changed()
	if dropped != nil {
		dropped(before)
	}
	if last && s.lost != nil {
		s.lost(before)
	}
}

// identity is what of a record tells which node it is.
func (r nodeRecord) identity(key string) discovery.DirectoryNode {
	switch {
	case r.scanner != nil:
		return *r.scanner
	case r.manual != nil:
		return discovery.DirectoryNode{HostUUID: key, Name: r.manual.Name}
	}
	return discovery.DirectoryNode{HostUUID: key}
}

// dropOlder removes what no scanner from that generation on has announced.
func (s *nodeStore) dropOlder(generation int) {
	var stale []string
	s.mu.Lock()
	for uuid, r := range s.records {
		if r.scanner != nil && r.generation < generation {
			stale = append(stale, uuid)
		}
	}
	s.mu.Unlock()
	for _, uuid := range stale {
		s.removeOlder(uuid, generation) // it may have been announced meanwhile
	}
}

// name returns what to call a node: its name, or the uuid of one that has none or
// is not in the directory.
func (s *nodeStore) name(hostUUID string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.records[hostUUID].identity(hostUUID).Name, hostUUID)
}

// available returns all nodes as the client and the scheduler see them.
func (s *nodeStore) available() []discovery.AvailableNode { return s.list(nodeRecord.project) }

// list returns a view of every record, sorted by id, then host uuid.
func (s *nodeStore) list(view func(nodeRecord) discovery.AvailableNode) []discovery.AvailableNode {
	s.mu.Lock()
	nodes := make([]discovery.AvailableNode, 0, len(s.records))
	for _, r := range s.records {
		nodes = append(nodes, view(r))
	}
	s.mu.Unlock()
	slices.SortFunc(nodes, func(a, b discovery.AvailableNode) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.HostUUID, b.HostUUID))
	})
	return nodes
}

// directory returns the nodes of the scanner (DI-121) that have any of the services, or all for none,
// sorted by host uuid.
func (s *nodeStore) directory(services []string) discovery.Directory {
	d := discovery.Directory{Nodes: []discovery.DirectoryNode{}}
	s.mu.Lock()
	for _, r := range s.records {
		if r.scanner != nil && (len(services) == 0 || hasAny(*r.scanner, services)) {
			d.Nodes = append(d.Nodes, *r.scanner)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(d.Nodes, func(a, b discovery.DirectoryNode) int { return cmp.Compare(a.HostUUID, b.HostUUID) })
	return d
}

func hasAny(n discovery.DirectoryNode, services []string) bool {
	return slices.ContainsFunc(services, func(s string) bool { _, ok := n.Services[s]; return ok })
}

// project is the client's view of a record (BR-38).
func (r nodeRecord) project() discovery.AvailableNode {
	if r.scanner == nil {
		n := *r.manual
		n.LastSeenSeconds = r.lastSeen
		return n
	}
	n := discovery.AvailableNode{
		ID: r.scanner.Name, Name: r.scanner.Name, HostUUID: r.scanner.HostUUID,
		IPAddress: r.scanner.IP, Port: r.scanner.Services[discovery.ServiceNodeInfo].Port,
		LastSeenSeconds: r.lastSeen,
		Trusted:         r.scanner.Trusted, Clustered: r.scanner.ClusterUUID != "",
		Models: r.scanner.Models, ModelsByEngine: r.scanner.ModelsByEngine, LoadedByEngine: r.scanner.LoadedByEngine,
	}
	if len(r.scanner.IPs) > 1 {
		n.IPAddresses = r.scanner.IPs
	}
	return n
}

// fromScanner handles the scanner's notifications.
func (b *Broker) fromScanner(l *workerLink, req *jsonrpc.Request) bool {
	switch req.Method {
	case discovery.NotifyNodeDiscovered, discovery.NotifyNodeUpdated, discovery.NotifyNodeRemoved:
	case discovery.NotifyNodeTelemetry:
		b.observed(l, req)
		return true
	default:
		return false
	}
	var e discovery.NodeEvent
	if err := json.Unmarshal(req.Params, &e); err != nil {
		l.undecodable(req, err)
		return true
	}
	if req.Method == discovery.NotifyNodeRemoved {
		b.nodes.remove(e.Node.HostUUID)
	} else {
		b.nodes.upsert(e.Node, l.process.Generation)
	}
	if e.Node.HostUUID == b.cfg.NodeID {
		b.membership.changed() // the scanner looks at the cluster's directory all the time; its entry of this node follows
	}
	return true
}
