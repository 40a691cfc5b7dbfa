// SPDX-License-Identifier: Apache-2.0

// Package manualnodes is the agreement about nodes that a user gives by address:
// what the worker that keeps and probes them tells the broker and the client.
package manualnodes

import "encoding/json"

// Requests of a client, which the broker relays.
const (
	MethodAdd    = "node/add"    // Add -> Status, not yet probed
	MethodRemove = "node/remove" // Remove -> Removed
	MethodList   = "nodes/list"  // -> Nodes
)

// Notifications of the worker.
const (
	NotifyDiscovered = "node/discovered" // Status after the first probe
	NotifyUpdated    = "node/updated"    // Status that differs from the one before
	NotifyRemoved    = "node/removed"    // Status with the id and otherwise zero values
)

// IDPrefix stands before the address in the id of a node that was given no name.
const IDPrefix = "manual:"

// ErrorID is the service error that says that a node does not answer.
func ErrorID(node string) string { return "manual-nodes:probe-failed:" + node }

// FileErrorID is the service error that says that the list of nodes cannot be
// read, and so is not kept.
const FileErrorID = "manual-nodes:list-unreadable"

// Ports says where a node's services listen; 0 is the usual port.
type Ports struct {
	NodeInfo int `json:"node_info,omitempty"`
	Ollama   int `json:"ollama,omitempty"`
	LMStudio int `json:"lmstudio,omitempty"`
}

// Add gives a node. Of one whose address is known already, members that are
// absent stay as they are.
type Add struct {
	Address string `json:"address"` // a host name or an IP literal, without port
	Name    string `json:"name,omitempty"`
	TLSPort *int   `json:"tls_port,omitempty"` // of node-info over TLS; 0 = plain
	MTLS    *bool  `json:"mtls,omitempty"`     // kept and shown, without effect
	Ports   *Ports `json:"ports,omitempty"`
}

// Remove names a node by its id.
type Remove struct {
	ID string `json:"id"`
}

// Removed is the result of node/remove; false means that there was none.
type Removed struct {
	Removed bool `json:"removed"`
}

// Nodes is the result of nodes/list, sorted by id.
type Nodes struct {
	Nodes []Status `json:"nodes"` // never null
}

// Status is a node as its last probe found it. Members are only ever added.
type Status struct {
	ID      string `json:"id"`
	Name    string `json:"name,omitempty"`
	Address string `json:"address"` // as typed
	Ports   *Ports `json:"ports,omitempty"`

	OllamaUp       bool     `json:"ollama_up"`
	OllamaPort     int      `json:"ollama_port"`
	OllamaModels   []string `json:"ollama_models,omitempty"`
	LMStudioUp     bool     `json:"lmstudio_up"`
	LMStudioPort   int      `json:"lmstudio_port"`
	LMStudioModels []string `json:"lmstudio_models,omitempty"`
	NodeInfoUp     bool     `json:"node_info_up"`
	NodeInfoPort   int      `json:"node_info_port"`

	TLSEnabled   bool `json:"tls_enabled,omitempty"`
	MTLSRequired bool `json:"mtls_required,omitempty"` // what Add.MTLS said

	GPUs           json.RawMessage `json:"gpus,omitempty"` // as node-info's GPUs; never an empty list
	CPU            json.RawMessage `json:"cpu,omitempty"`
	Memory         json.RawMessage `json:"memory,omitempty"`
	TelemetryValid bool            `json:"telemetryValid"`
	AgeMillis      int64           `json:"msSince"`            // age of the sample; 0 when invalid
	HostUUID       string          `json:"hostUuid,omitempty"` // as the node says; kept while it does not answer

	// Peer is a node of this product: its engines serve paired nodes only, so that
	// none of their ports is ever asked in plaintext. Services are its ports by
	// service code, where it tells them.
	Peer     bool           `json:"peer,omitempty"`
	Services map[string]int `json:"services,omitempty"`

	// Addresses are the IP addresses at which a peer answered, what Address
	// resolves to if that is a name; no link-local ones of IPv6. Absent while it
	// does not answer.
	Addresses []string `json:"addresses,omitempty"`

	Local bool   `json:"local,omitempty"` // the address is this machine's own
	Error string `json:"error,omitempty"` // for people: why the node, or an engine whose port was given, is not used

	// Only in the result of nodes/list; absent while there was none.
	ProbeAgeMillis  *int64 `json:"msSinceProbe,omitempty"`  // age of the last probe
	AnswerAgeMillis *int64 `json:"msSinceAnswer,omitempty"` // age of the last probe that was answered
}
