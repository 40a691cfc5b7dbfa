// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"nvpair/shared/discovery"
	"nvpair/shared/engine"
	"nvpair/shared/manualnodes"
	"nvpair/shared/nodeinfo"
)

// nodeRow is a line of the list of nodes: a node of the directory and the
// addresses that were added and lead to it, or one that leads nowhere.
type nodeRow struct {
	id                            string // the node's host uuid, or the entry's id
	name, address, seen, hardware string
	models, note                  string
	entries                       []manualnodes.Status
}

// noAddress stands for that of a node which has none that is usable.
const noAddress = "-"

// rows joins the two lists. An address of this machine itself keeps a row of its
// own, whoever answers there.
func (l nodeList) rows() []nodeRow {
	var rows []nodeRow
	shown := make(map[string]bool)
	for _, n := range l.Nodes {
		var entries []manualnodes.Status
		for _, m := range l.Manual {
			if key := cmp.Or(m.HostUUID, m.ID); key == n.HostUUID && key != l.self {
				shown[m.ID] = true
				entries = append(entries, m)
			}
		}
		rows = append(rows, l.row(n, entries))
	}
	for _, m := range l.Manual {
		if !shown[m.ID] {
			rows = append(rows, nodeRow{
				id: m.ID, name: cmp.Or(m.Name, m.ID), address: m.Address, seen: seen(m.AnswerAgeMillis), hardware: "-", models: "-",
				note: cmp.Or(m.Error, "being tried"), entries: []manualnodes.Status{m},
			})
		}
	}
	return rows
}

func (l nodeList) row(n discovery.AvailableNode, entries []manualnodes.Status) nodeRow {
	r := nodeRow{id: n.HostUUID, name: n.Name, address: cmp.Or(n.IPAddress, noAddress), entries: entries}
	var added manualnodes.Status // the entry in use
	for i, m := range entries {
		if i == 0 || m.Address == n.IPAddress {
			added = m
		}
	}
	r.hardware = cmp.Or(hardware(n.GPUs, n.CPU, n.Memory), hardware(added.GPUs, added.CPU, added.Memory), "-")
	r.models = models(n, added)
	self := n.HostUUID == l.self
	last := n.AnswerAgeMillis
	if probed := added.AnswerAgeMillis; last == nil || probed != nil && *probed < *last {
		last = probed
	}
	r.seen = "-" // how long ago a machine that tells no load was heard is not known here
	if !self && (last != nil || added.ID != "") {
		r.seen = seen(last)
	}
	var notes []string
	switch {
	case self:
		notes = append(notes, "this node")
	case added.ID != "" && added.Error != "":
		notes = append(notes, added.Error)
	case added.ID != "" && added.Local:
		notes = append(notes, "an address of this machine itself")
	case added.ID != "":
	case len(n.Engines) == 0:
		notes = append(notes, "no engine")
	case !n.Trusted:
		notes = append(notes, "not paired: its engines serve paired nodes only")
	}
	for _, m := range entries { // what it calls itself may be another name
		if called := cmp.Or(m.Name, m.ID); called != n.Name {
			notes = append(notes, "added as "+cell(called))
		}
	}
	r.note = strings.Join(notes, "; ")
	return r
}

// seen prints the age of the last sign of life.
func seen(millis *int64) string {
	if millis == nil {
		return "never"
	}
	return age(*millis)
}

// models counts the models of each engine that a node has; "?" stands for those
// that it does not tell.
func models(n discovery.AvailableNode, added manualnodes.Status) string {
	var parts []string
	for _, e := range engine.All() {
		list, told := n.ModelsByEngine[e.ID]
		up := e.ID == "ollama" && added.OllamaUp || e.ID == "lmstudio" && added.LMStudioUp
		switch {
		case told || up:
			parts = append(parts, fmt.Sprintf("%s %d", e.ID, len(list)))
		case slices.Contains(n.Engines, e.ID):
			parts = append(parts, e.ID+" ?")
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

// hardware is a machine in a few words: its graphics adapters, or without any its
// cores and memory; "" if nothing is known.
func hardware(gpus, cpu, memory json.RawMessage) string {
	var adapters []nodeinfo.GPU
	var processor nodeinfo.CPU
	var ram nodeinfo.Memory
	_ = json.Unmarshal(gpus, &adapters) // what is no hardware says nothing
	_ = json.Unmarshal(cpu, &processor)
	_ = json.Unmarshal(memory, &ram)
	if len(adapters) > 0 {
		first := adapters[0]
		same := 0
		for _, g := range adapters {
			if g.Name == first.Name && g.VRAM == first.VRAM {
				same++
			}
		}
		text := strings.TrimSpace(first.Name + " " + size(first.VRAM))
		if same > 1 {
			text = fmt.Sprintf("%d x %s", same, text)
		}
		if others := len(adapters) - same; others > 0 {
			text += fmt.Sprintf(" + %d other", others)
		}
		return text
	}
	var parts []string
	if processor.Cores > 0 {
		parts = append(parts, fmt.Sprintf("%d cores", processor.Cores))
	}
	if ram.Total > 0 {
		parts = append(parts, size(ram.Total))
	}
	return strings.Join(parts, ", ")
}

// size prints bytes for people; "" is 0.
func size(bytes uint64) string {
	const mib, gib = 1 << 20, 1 << 30
	switch {
	case bytes == 0:
		return ""
	case bytes < gib:
		return fmt.Sprintf("%d MiB", bytes/mib)
	}
	return fmt.Sprintf("%d GiB", (bytes+gib/2)/gib)
}
