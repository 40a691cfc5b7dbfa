// SPDX-License-Identifier: Apache-2.0

// Package discovery is the agreement about nodes: what the scanner, the broker,
// the subscribing workers and the client tell each other.
package discovery

import "encoding/json"

// Methods on the scanner's link: requests of the broker, except for
// MethodNodeActivity, which is sent as a notification.
const (
	MethodRegister       = "discovery:register"   // Registration
	MethodUpdateTXT      = "discovery:update-txt" // Registration, the same as register
	MethodUnregister     = "discovery:unregister" // Unregistration
	MethodGetNodes       = "discovery:get-nodes"  // Filter -> Directory
	MethodReloadIdentity = "discovery:reload-identity"
	MethodReloadTrust    = "discovery:reload-trust"
	MethodSetObserved    = "discovery:set-observed-addresses"
	MethodNodeActivity   = "discovery:node-activity"

	MethodStaticNode        = "discovery:static-node"         // StaticNode (DEC-118)
	MethodStaticNodeRemoved = "discovery:static-node-removed" // StaticNode with its HostUUID only
)

// Notifications of the scanner.
const (
	NotifyNodeDiscovered = "discovery:node-discovered" // NodeEvent
	NotifyNodeUpdated    = "discovery:node-updated"    // NodeEvent
	NotifyNodeRemoved    = "discovery:node-removed"    // NodeEvent, the last known state
	NotifyNodeTelemetry  = "discovery:node-telemetry"
)

// Methods between the broker and other workers or the client.
const (
	MethodSubscribe    = "discovery:subscribe"     // worker: Subscription; client: no params
	MethodUnsubscribe  = "discovery:unsubscribe"   // client
	NotifyNodes        = "discovery:nodes"         // broker to worker: Directory
	NotifyNodesChanged = "discovery:nodes-changed" // broker to client: []AvailableNode
)

// Service codes of the node record.
const (
	ServiceNodeInfo = "ni"
	ServiceErrors   = "er"
	ServiceWorkload = "wl"
	ServiceCluster  = "cl"
	ServiceEngines  = "em"
	ServiceControl  = "ec"
)

// Fixed ports (WR-70).
const (
	PortNodeInfo = 14318
	PortErrors   = 14319
	PortWorkload = 14320
	PortCluster  = 14321
	PortEngines  = 14322
	PortControl  = 14323
	PortLast     = 14326 // the last port that is kept for the product
)

// Registration says that a service of this node listens on a port.
type Registration struct {
	Service string            `json:"service"`
	Port    int               `json:"port"`          // 1..65535; 0 is ignored
	TXT     map[string]string `json:"txt,omitempty"` // reserved, ignored
}

// Unregistration withdraws a service.
type Unregistration struct {
	Service string `json:"service"`
}

// Ack is the result of the methods that only apply something.
type Ack struct {
	OK bool `json:"ok"`
}

// Filter selects nodes by a service; empty is all of them.
type Filter struct {
	Service string `json:"service,omitempty"`
}

// Subscription selects the nodes that have any of the services; empty is all.
type Subscription struct {
	Services []string `json:"services,omitempty"`
}

// Service is one service of a node.
type Service struct {
	Port int `json:"port"`
}

// DirectoryNode is a node as the scanner knows it (DI-72). Members are only ever
// added; readers ignore unknown ones.
type DirectoryNode struct {
	HostUUID        string              `json:"hostUuid"`
	Name            string              `json:"name"`
	IP              string              `json:"ip"`            // "" if none is usable
	IPs             []string            `json:"ips,omitempty"` // all candidates, IP first
	ClusterUUID     string              `json:"clusterUuid,omitempty"`
	Trusted         bool                `json:"trusted"`
	Services        map[string]Service  `json:"services"` // by service code
	GPUs            json.RawMessage     `json:"gpus,omitempty"`
	CPU             json.RawMessage     `json:"cpu,omitempty"`
	Memory          json.RawMessage     `json:"memory,omitempty"`
	Models          []string            `json:"models,omitempty"`
	ModelsByEngine  map[string][]string `json:"modelsByEngine,omitempty"` // [] = asked, none
	LoadedByEngine  map[string][]string `json:"loadedByEngine,omitempty"` // [] = running, nothing loaded
	LastSeenSeconds int64               `json:"lastSeen"`                 // Unix seconds of the last change
}

// NodeEvent is the payload of the scanner's node notifications.
type NodeEvent struct {
	Node DirectoryNode `json:"node"`
}

// Directory is a list of nodes, sorted by host uuid.
type Directory struct {
	Nodes []DirectoryNode `json:"nodes"` // never null
}

// Telemetry is the payload of discovery:node-telemetry.
type Telemetry struct {
	HostUUID  string  `json:"hostUuid"`
	GPUUse    float64 `json:"gpuUtilizationPercent"` // 0..100, the busiest GPU
	Valid     bool    `json:"telemetryValid"`
	AgeMillis int64   `json:"msSince"` // age of the sample; 0 when invalid
}

// StaticNode is a node of ours that is known by address: the scanner owns it from
// then on like one that was heard (DEC-118).
type StaticNode struct {
	HostUUID  string             `json:"hostUuid"`
	Name      string             `json:"name,omitempty"`
	Addresses []string           `json:"addresses,omitempty"`
	Services  map[string]Service `json:"services,omitempty"` // by service code
}

// ObservedAddresses are this machine's addresses at which peers have reached it
// (DI-97).
type ObservedAddresses struct {
	Addresses []string `json:"addresses"` // replaces the former list
}

// Activity says that bytes of a node's answer reached a client: the payload of
// node/activity and MethodNodeActivity.
type Activity struct {
	HostUUID  string `json:"hostUuid"`
	AgeMillis int64  `json:"msSince"`
}

// AvailableNode is a node as the client sees it (BR section 4).
type AvailableNode struct {
	ID              string              `json:"id"`
	Name            string              `json:"name"` // the same as ID
	HostUUID        string              `json:"hostUuid,omitempty"`
	IPAddress       string              `json:"ipAddress"`             // "" if none is usable
	IPAddresses     []string            `json:"ipAddresses,omitempty"` // ranked; only with two or more
	Port            int                 `json:"port"`                  // of node-info, 0 if it has none
	LastSeenSeconds int64               `json:"lastSeen"`              // Unix seconds
	Trusted         bool                `json:"trusted"`
	Clustered       bool                `json:"clustered,omitempty"`
	Models          []string            `json:"models,omitempty"`
	ModelsByEngine  map[string][]string `json:"modelsByEngine,omitempty"`
	LoadedByEngine  map[string][]string `json:"loadedByEngine,omitempty"`

	// Additions, for the client only: the engines that the node says it serves, by
	// id; its hardware, as DirectoryNode has it; the age of its last sign of life,
	// absent where none is known, and of this node.
	Engines         []string        `json:"engines,omitempty"`
	GPUs            json.RawMessage `json:"gpus,omitempty"`
	CPU             json.RawMessage `json:"cpu,omitempty"`
	Memory          json.RawMessage `json:"memory,omitempty"`
	AnswerAgeMillis *int64          `json:"msSinceAnswer,omitempty"`
}

// AvailableNodes is the result of the client's discovery:get-nodes.
type AvailableNodes struct {
	Nodes []AvailableNode `json:"nodes"` // never null
}
