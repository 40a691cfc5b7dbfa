// SPDX-License-Identifier: Apache-2.0

// Package engine is the table of engines that have a facade (WR-40).
package engine

import (
	"fmt"
	"strings"
)

// Engine is one row of the table.
type Engine struct {
	ID          string // in methods and settings
	DisplayName string
	ServiceKey  string // in the node record
	FacadePort  int    // the port that clients of the engine know
	BasePort    int    // first port the engine itself may move to
	SavedPort   string // where the facade keeps a chosen port
	Aliases     bool   // its facade may have further addresses (PX-21)
}

// Proxy is the component name of the engine's facade: its namespace towards the
// client and its prefix in error ids.
func (e Engine) Proxy() string { return e.ID + "-proxy" }

// All returns the table in its significant order.
func All() []Engine {
	return []Engine{
		{"ollama", "Ollama", "ol", 11434, 11435, "proxy-port.json", true},
		{"lmstudio", "LM Studio", "lm", 1234, 1235, "lmstudio-proxy-port.json", false},
	}
}

// ByID returns the engine with that id.
func ByID(id string) (Engine, bool) {
	for _, e := range All() {
		if e.ID == id {
			return e, true
		}
	}
	return Engine{}, false
}

// ParseList reads a comma-separated list of engine ids (BR-3): blanks and empty
// items are ignored, duplicates collapse, the order stays.
func ParseList(csv string) ([]Engine, error) {
	var list []Engine
	seen := map[string]bool{}
	for item := range strings.SplitSeq(csv, ",") {
		id := strings.TrimSpace(item)
		if id == "" || seen[id] {
			continue
		}
		e, ok := ByID(id)
		if !ok {
			return nil, fmt.Errorf("unknown engine %q, known are: %s", id, IDs())
		}
		seen[id] = true
		list = append(list, e)
	}
	return list, nil
}

// IDs returns all engine ids, comma-separated in table order.
func IDs() string {
	ids := make([]string, 0, 2)
	for _, e := range All() {
		ids = append(ids, e.ID)
	}
	return strings.Join(ids, ",")
}

// SplitMethod cuts the address off a method on the proxy's link (WR-38). Only a
// known engine id before the first colon is an address.
func SplitMethod(method string) (id, bare string) {
	before, after, found := strings.Cut(method, ":")
	if _, known := ByID(before); found && known {
		return before, after
	}
	return "", method
}
