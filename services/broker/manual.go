// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"nvpair/internal/jsonrpc"
	"nvpair/services/broker/feed"
	"nvpair/shared/discovery"
	"nvpair/shared/engine"
	"nvpair/shared/facade"
	wire "nvpair/shared/manualnodes"
)

// manualNodes is what the worker manual-nodes has told, and what follows from it:
// claims in the directory, telemetry, and nodes of the facades (BR-39 to BR-41).
//
// A node is known elsewhere by its key: its own identity once it has told it, until
// then the id of its entry. Several entries may lead to one node; then one that
// answers speaks for it, the first by id.
//
// Lock order: manualNodes.mu, then workloadFlow.mu, nodeStore.mu or
// facadeState.mu.
type manualNodes struct {
	b *Broker

	// mu guards known. It is held over what a change causes, which is memory and
	// queues only, so that everybody sees the changes in one order.
	mu    sync.Mutex
	known map[string]manualNode           // by id of the entry
	fixed map[string]discovery.StaticNode // nodes of this product as the scanner was told of them, by key
}

type manualNode struct {
	wire.Status
	received time.Time
}

func (n manualNode) key() string { return cmp.Or(n.HostUUID, n.ID) }

func (n manualNode) answers() bool { return n.OllamaUp || n.LMStudioUp || n.NodeInfoUp }

var errNoID = errors.New("a node without an id")

// fromManual handles the worker's notifications.
func (b *Broker) fromManual(l *workerLink, req *jsonrpc.Request) bool {
	switch req.Method {
	case wire.NotifyDiscovered, wire.NotifyUpdated, wire.NotifyRemoved:
	default:
		return false
	}
	var st wire.Status
	err := json.Unmarshal(req.Params, &st)
	if err == nil && st.ID == "" {
		err = errNoID
	}
	if err != nil {
		l.undecodable(req, err)
		return true
	}
	// This machine has its own record; it is no node of itself.
	usable := req.Method != wire.NotifyRemoved && st.HostUUID != b.cfg.NodeID
	if st.Local && !st.OllamaUp && !st.LMStudioUp {
		usable = false
	}
	b.manual.told(manualNode{st, time.Now()}, usable)
	return true
}

// told takes a node's new status, or its end.
func (m *manualNodes) told(n manualNode, usable bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, known := m.known[n.ID]
	if usable {
		m.known[n.ID] = n
		m.settleLocked(n.key()) // before an old key is released (MN-32)
	} else {
		delete(m.known, n.ID)
	}
	if known && !(usable && old.key() == n.key()) {
		m.settleLocked(old.key())
	}
}

// manualEnded withdraws all that a worker that is gone had told; its successor
// tells it again (DEC-56).
func (b *Broker) manualEnded() {
	m := b.manual
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := make(map[string]bool)
	for _, n := range m.known {
		keys[n.key()] = true
	}
	clear(m.known)
	for key := range keys {
		m.settleLocked(key)
	}
}

// entriesLocked returns the entries that lead to a node, the one that speaks for
// it first.
func (m *manualNodes) entriesLocked(key string) []manualNode {
	var entries []manualNode
	for _, n := range m.known {
		if n.key() == key {
			entries = append(entries, n)
		}
	}
	slices.SortFunc(entries, func(a, b manualNode) int {
		if a.answers() != b.answers() {
			if a.answers() {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.ID, b.ID)
	})
	return entries
}

// settleLocked makes everybody see of a node what its entries say.
func (m *manualNodes) settleLocked(key string) {
	entries := m.entriesLocked(key)
	if len(entries) == 0 {
		m.b.tellTelemetry(func() (discovery.Telemetry, bool) { return m.b.telemetry.Forget(feed.ManualTelemetry, key) })
		m.b.nodes.removeManual(key)
	} else {
		m.b.nodes.upsertManual(key, entries[0].project())
		m.b.tellTelemetry(func() (discovery.Telemetry, bool) {
			return m.b.telemetry.Observe(feed.ManualTelemetry, entries[0].telemetry())
		})
	}
	m.fixLocked(key, entries)
	l := m.b.byName[workerProxy].current()
	if l == nil {
		return
	}
	for _, s := range m.b.facades.list {
		if m.b.facades.isUp(s.engine) {
			m.bridge(l, s.engine, key, entries)
		}
	}
}

// replay tells a facade that came up of all nodes.
func (m *manualNodes) replay(l *workerLink, e engine.Engine) {
	m.mu.Lock()
	defer m.mu.Unlock()
	told := make(map[string]bool)
	for _, n := range m.known {
		if key := n.key(); !told[key] {
			told[key] = true
			m.bridge(l, e, key, m.entriesLocked(key))
		}
	}
}

// bridge tells a facade where its engine is on a node, or that it is not there.
func (m *manualNodes) bridge(l *workerLink, e engine.Engine, key string, entries []manualNode) {
	method, params := facade.MethodRemoveManual, encode(facade.ManualRef{ID: key, Engine: e.ID})
	for _, n := range entries {
		up, port, models := n.serves(e.ID)
		if !up || port <= 0 || n.Address == "" || n.Local && m.b.facades.isOwnPort(port) {
			continue
		}
		method, params = facade.MethodAddManual, encode(facade.ManualNode{
			ID: key, Engine: e.ID, Host: n.Address, Port: port, Addresses: []string{n.Address}, Models: models,
		})
		break
	}
	l.conn.Start(e.ID+":"+method, params, bridgeDeadline, func(r jsonrpc.Response) {
		if _, err := r.Decode(); err != nil {
			m.b.cfg.Log.Warn("facade not told of a node", "engine", e.ID, "node", key, "err", err)
		}
	})
}

// bridgeDeadline is for one call.
const bridgeDeadline = 5 * time.Second

// isOwnPort reports whether a facade of this node listens there: a request must
// never come back to where it is.
func (f *facades) isOwnPort(port int) bool {
	return port == f.alias.port || slices.ContainsFunc(f.list, func(s *facadeState) bool { return s.boundPort() == port })
}

// serves returns where an engine of the node is. A peer's engines are reached over
// the cluster only (MN-42).
func (n manualNode) serves(engineID string) (up bool, port int, models []string) {
	switch {
	case n.Peer:
		return false, 0, nil
	case engineID == "ollama":
		return n.OllamaUp, n.OllamaPort, n.OllamaModels
	case engineID == "lmstudio":
		return n.LMStudioUp, n.LMStudioPort, n.LMStudioModels
	}
	return false, 0, nil
}

// project is the client's view of the node (MN-31).
func (n manualNode) project() discovery.AvailableNode {
	a := discovery.AvailableNode{
		ID: n.ID, Name: cmp.Or(n.Name, n.ID), HostUUID: n.key(), IPAddress: n.Address, Port: n.NodeInfoPort,
	}
	for _, e := range engine.All() {
		_, _, models := n.serves(e.ID)
		models = slices.DeleteFunc(slices.Clone(models), func(m string) bool { return m == "" })
		if len(models) == 0 {
			continue
		}
		if a.ModelsByEngine == nil {
			a.ModelsByEngine = make(map[string][]string)
		}
		a.ModelsByEngine[e.ID] = models
		for _, m := range models {
			if !slices.Contains(a.Models, m) {
				a.Models = append(a.Models, m)
			}
		}
	}
	return a
}

// telemetry is what the node says of its load, at its present age (MN-36).
func (n manualNode) telemetry() discovery.Telemetry {
	var gpus []struct {
		Use float64 `json:"utilization_percent"`
	}
	_ = json.Unmarshal(n.GPUs, &gpus) // what is no list has no load
	t := discovery.Telemetry{HostUUID: n.key(), Valid: n.TelemetryValid}
	for _, g := range gpus {
		t.GPUUse = max(t.GPUUse, g.Use)
	}
	if t.Valid {
		t.AgeMillis = max(n.AgeMillis, 0) + time.Since(n.received).Milliseconds()
	}
	return t
}

// named lets a client that knows a node by its key remove its entry, the first of
// several (MN-37). What is an id, or unknown, stays as it is.
func (m *manualNodes) named(params json.RawMessage) json.RawMessage {
	var r wire.Remove
	if json.Unmarshal(params, &r) != nil || r.ID == "" {
		return params
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, isID := m.known[r.ID]; isID {
		return params
	}
	first := ""
	for id, n := range m.known {
		if n.HostUUID == r.ID && (first == "" || id < first) {
			first = id
		}
	}
	if first == "" {
		return params
	}
	return encode(wire.Remove{ID: first})
}
