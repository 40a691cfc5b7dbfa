// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"encoding/json"
	"slices"

	"nvpair/internal/jsonrpc"
	"nvpair/shared/discovery"
	"nvpair/shared/engine"
)

// clientNodes is the client's view of all nodes: the directory's, with what it
// alone does not know, which is this node's own models and when another was last
// heard of.
func (b *Broker) clientNodes() []discovery.AvailableNode {
	nodes := b.nodes.list(nodeRecord.describe)
	ages := make(map[string]int64)
	for _, t := range b.telemetry.All() {
		if t.Valid {
			ages[t.HostUUID] = t.AgeMillis
		}
	}
	for i := range nodes {
		n := &nodes[i]
		if age, known := ages[n.HostUUID]; known && n.HostUUID != b.cfg.NodeID {
			n.AnswerAgeMillis = &age
		}
		if n.HostUUID == b.cfg.NodeID && n.ModelsByEngine == nil {
			b.facades.addModels(n)
		}
	}
	return nodes
}

// clientNodesChanged is nodesChanged for what only the client sees.
func (b *Broker) clientNodesChanged() {
	if b.client.discovery.Load() {
		b.client.paced.Mark()
	}
}

// manualTold is fromManual, and has the client look at its lists again: one of
// them, nodes/list, has addresses that the directory has not, such as this
// machine's own.
func (b *Broker) manualTold(l *workerLink, req *jsonrpc.Request) bool {
	known := b.fromManual(l, req)
	b.clientNodesChanged()
	return known
}

// describe is project with what people ask for besides.
func (r nodeRecord) describe() discovery.AvailableNode {
	n := r.project()
	if r.scanner == nil {
		return n
	}
	n.GPUs, n.CPU, n.Memory = brief(r.scanner.GPUs), brief(r.scanner.CPU), brief(r.scanner.Memory)
	for _, e := range engine.All() {
		if _, serves := r.scanner.Services[e.ServiceKey]; serves {
			n.Engines = append(n.Engines, e.ID)
		}
	}
	return n
}

// maxHardwareBytes bounds each part of a node's hardware, so that the list of all
// nodes fits a frame.
const maxHardwareBytes = 4 << 10

func brief(part json.RawMessage) json.RawMessage {
	if len(part) > maxHardwareBytes {
		return nil
	}
	return part
}

// addModels gives this node the models of its own engines. The scanner is to learn
// them from the engine manager; until there is one, the look at the engines is the
// only source.
func (f *facades) addModels(n *discovery.AvailableNode) {
	for _, s := range f.list {
		models := s.models()
		if models == nil {
			continue
		}
		if n.ModelsByEngine == nil {
			n.ModelsByEngine = make(map[string][]string)
		}
		n.ModelsByEngine[s.engine.ID] = models
		n.Models = slices.Clip(n.Models) // it may be the record's
		for _, m := range models {
			if !slices.Contains(n.Models, m) {
				n.Models = append(n.Models, m)
			}
		}
	}
}

// models returns what the own engines have, nil if there is none that answers.
func (s *facadeState) models() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, e := range s.own {
		if e.up && all == nil {
			all = []string{}
		}
		for _, m := range e.models {
			if !slices.Contains(all, m) {
				all = append(all, m)
			}
		}
	}
	return all
}
