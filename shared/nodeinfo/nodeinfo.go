// SPDX-License-Identifier: Apache-2.0

// Package nodeinfo is the agreement about the inventory of a node: what GET
// /v1/node-info answers, and what broker and node-info tell each other.
package nodeinfo

import (
	"errors"
	"fmt"
)

// Path is the one route of the inventory.
const Path = "/v1/node-info"

// Notifications of the broker to node-info.
const (
	MethodSetClusterIdentity = "nodeinfo:set-cluster-identity" // ClusterIdentity
	MethodSetServices        = "nodeinfo:set-services"         // Services
)

// NotifyObservedAddresses is what node-info tells the broker: ObservedAddresses.
const NotifyObservedAddresses = "nodeinfo:observed-addresses"

// NodeInfo is the answer of the route. Members are only ever added (NI-11).
// Figures that are unknown or zero are absent; for the use of GPUs
// TelemetryValid tells idle from unknown, for the node as a whole (NI-8).
type NodeInfo struct {
	GPUs           []GPU   `json:"GPUs"`             // never null; the capitals are the wire's
	CPU            *CPU    `json:"cpu,omitempty"`    // nil is unknown
	Memory         *Memory `json:"memory,omitempty"` // nil is unknown
	TelemetryValid bool    `json:"telemetryValid"`   // there was a reading of a GPU's use
	AgeMillis      int64   `json:"msSince"`          // age of that reading; 0 while there was none
	HostUUID       string  `json:"hostUuid,omitempty"`
	// ClusterUUID is the node's principal in its cluster. Empty: the node is in
	// no cluster. Nil: it does not know. The last is never turned into the
	// second (NI-16).
	ClusterUUID *string `json:"clusterUuid,omitempty"`
	// Services are the ports of this node by service code, all of them; nil is
	// unknown, as from a node of another kind (MN-40).
	Services map[string]int `json:"services,omitzero"`
}

// GPU is a graphics adapter.
type GPU struct {
	Name      string `json:"name"`                          // "Unknown" if it has none
	VRAM      uint64 `json:"vram_bytes,omitempty"`          // the machine's memory if the adapter has none of its own
	VRAMInUse uint64 `json:"vram_used_bytes,omitempty"`     // likewise
	UsePct    uint32 `json:"utilization_percent,omitempty"` // 0..100
}

// CPU is the processors of a node, taken together.
type CPU struct {
	Name   string `json:"name,omitempty"`
	Cores  uint32 `json:"cores,omitempty"`               // physical ones, over all sockets
	UsePct uint32 `json:"utilization_percent,omitempty"` // 0..100
}

// Memory is the main memory of a node.
type Memory struct {
	Total uint64 `json:"total_bytes,omitempty"`
	InUse uint64 `json:"used_bytes,omitempty"`
}

// ClusterIdentity says which principal the node has in its cluster.
type ClusterIdentity struct {
	ClusterUUID *string `json:"clusterUuid"` // never left out; "" is a node in no cluster
}

// Services says on which ports the node serves what, by service code.
type Services struct {
	Services map[string]int `json:"services"` // always the whole set, never null
}

// ObservedAddresses lists the addresses of this machine at which a peer's
// request arrived within the last five minutes.
type ObservedAddresses struct {
	Addresses []string `json:"addresses"` // sorted, never null
}

// Bounds of what the broker pushes.
const (
	maxClusterUUIDBytes = 128
	maxServices         = 64
	maxServiceBytes     = 32
)

// Validate reports why the identity is unusable, or nil.
func (c ClusterIdentity) Validate() error {
	switch {
	case c.ClusterUUID == nil:
		return errors.New("clusterUuid is missing")
	case len(*c.ClusterUUID) > maxClusterUUIDBytes:
		return fmt.Errorf("clusterUuid is longer than %d bytes", maxClusterUUIDBytes)
	}
	return nil
}

// Validate reports why the set is unusable, or nil.
func (s Services) Validate() error {
	switch {
	case s.Services == nil:
		return errors.New("services are missing")
	case len(s.Services) > maxServices:
		return fmt.Errorf("%d services are more than %d", len(s.Services), maxServices)
	}
	for code, port := range s.Services {
		if code == "" || len(code) > maxServiceBytes || port < 1 || port > 65535 {
			return fmt.Errorf("service %.40q at port %d is none", code, port)
		}
	}
	return nil
}
