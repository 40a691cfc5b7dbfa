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

// nodeStore is the merged view of all nodes (BR section 7). So far one source
// claims records: the scanner.
type nodeStore struct {
	log     *slog.Logger
	changed func() // called after each mutation, outside the lock
	// lost, if set, is called outside the lock after changed when a node's last
	// claim is gone. Set it before the first node comes.
	lost func(discovery.DirectoryNode)

	mu      sync.Mutex // guards records
	records map[string]nodeRecord
}

// nodeRecord is one node, keyed by its host uuid.
type nodeRecord struct {
	scanner    discovery.DirectoryNode
	generation int // of the scanner process that announced it last
	lastSeen   int64
}

func newNodeStore(log *slog.Logger, changed func()) *nodeStore {
	return &nodeStore{log: log, changed: changed, records: make(map[string]nodeRecord)}
}

func (s *nodeStore) upsert(n discovery.DirectoryNode, generation int) {
	if n.HostUUID == "" {
		s.log.Warn("node without a host uuid ignored", "node", n.Name)
		return
	}
	s.mu.Lock()
	_, known := s.records[n.HostUUID]
	full := !known && len(s.records) >= maxNodes
	if !full {
		s.records[n.HostUUID] = nodeRecord{scanner: n, generation: generation, lastSeen: time.Now().Unix()}
	}
	s.mu.Unlock()
	if full {
		s.log.Warn("directory is full, node ignored", "node", n.HostUUID, "limit", maxNodes)
		return
	}
	s.changed()
}

// remove drops a claim; one that is not held is no event (BR-37).
func (s *nodeStore) remove(hostUUID string) { s.removeOlder(hostUUID, math.MaxInt) }

// removeOlder drops a claim unless a scanner from that generation on made it.
func (s *nodeStore) removeOlder(hostUUID string, generation int) {
	s.mu.Lock()
	r, known := s.records[hostUUID]
	old := known && r.generation < generation
	if old {
		delete(s.records, hostUUID)
	}
	s.mu.Unlock()
	if old {
		s.changed()
		if s.lost != nil {
			s.lost(r.scanner)
		}
	}
}

// dropOlder removes what no scanner from that generation on has announced.
func (s *nodeStore) dropOlder(generation int) {
	var stale []string
	s.mu.Lock()
	for uuid, r := range s.records {
		if r.generation < generation {
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
	return cmp.Or(s.records[hostUUID].scanner.Name, hostUUID)
}

// available returns the client's view, sorted by id, then host uuid.
func (s *nodeStore) available() []discovery.AvailableNode {
	s.mu.Lock()
	nodes := make([]discovery.AvailableNode, 0, len(s.records))
	for _, r := range s.records {
		nodes = append(nodes, r.project())
	}
	s.mu.Unlock()
	slices.SortFunc(nodes, func(a, b discovery.AvailableNode) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.HostUUID, b.HostUUID))
	})
	return nodes
}

// directory returns the nodes that have any of the services, or all for none,
// sorted by host uuid.
func (s *nodeStore) directory(services []string) discovery.Directory {
	d := discovery.Directory{Nodes: []discovery.DirectoryNode{}}
	s.mu.Lock()
	for _, r := range s.records {
		if len(services) == 0 || hasAny(r.scanner, services) {
			d.Nodes = append(d.Nodes, r.scanner)
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
	return true
}
