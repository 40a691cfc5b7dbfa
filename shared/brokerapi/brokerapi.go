// SPDX-License-Identifier: Apache-2.0

// Package brokerapi is what the broker and its client tell each other, as far as
// no other package of shared has it, and what the hub of a headless node adds.
package brokerapi

import "encoding/json"

// NotifyReady is the broker's first frame; its payload is link.Ready.
const NotifyReady = "app:ready"

// Requests that the broker answers itself.
const (
	MethodPing    = "ping"          // -> Pong
	MethodVersion = "version"       // -> link.Ready
	MethodStatus  = "broker:status" // -> Status; an addition to the reference's methods

	MethodWorkloadsGetInitial  = "workloads:get-initial" // -> Workloads
	MethodWorkloadsSubscribe   = "workloads:subscribe"   // -> Subscribed
	MethodWorkloadsUnsubscribe = "workloads:unsubscribe"
	MethodEngineSubscribe      = "engine:subscribe"
	MethodEngineUnsubscribe    = "engine:unsubscribe"
)

// What the hub of nvpair serve adds (DEC-120).
const (
	HubNamespace = "hub/" // of the methods that the hub serves itself, with or without a broker

	MethodHubStop       = "hub/stop"        // request, answered null before the node ends
	MethodHubStatus     = "hub/status"      // -> HubStatus
	NotifyHubBrokerLost = "hub/broker-lost" // HubBrokerLost; app:ready follows when it is back
)

// Pong is the result of ping.
type Pong struct {
	Pong         bool   `json:"pong"`
	Version      string `json:"version"`
	UptimeMillis int64  `json:"uptime_ms"`
}

// Subscribed is the result of every subscribe and unsubscribe.
type Subscribed struct {
	Subscribed bool `json:"subscribed"`
}

// FacadeStatus is the result of <engine>-proxy:get-status; the zero value says
// that the facade is down.
type FacadeStatus struct {
	Ready bool `json:"ready"`
	Port  int  `json:"port"`
}

// Workloads is the result of workloads:get-initial. Each record is as its origin
// wrote it.
type Workloads struct {
	Workloads []json.RawMessage `json:"workloads"` // never null
}

// Worker states in Status.
const (
	StateAbsent     = "absent"     // not installed
	StateRunning    = "running"    // process exists
	StateRestarting = "restarting" // ended, waits for its next start
	StateExhausted  = "exhausted"  // used up its restarts, stays down
	StateFailed     = "failed"     // its first start failed, stays down
	StateStopping   = "stopping"
	StateStopped    = "stopped"
)

// Status is what the broker knows of its tree.
type Status struct {
	Version      string   `json:"version"`
	UptimeMillis int64    `json:"uptimeMs"`
	PID          int      `json:"pid"`
	NodeID       string   `json:"nodeId"`
	DataDir      string   `json:"dataDir"`
	Workers      []Worker `json:"workers"` // in start order
	Facades      []Facade `json:"facades"` // enabled engines, in table order
	ErrorCount   int      `json:"errorCount"`
	DroppedCount int64    `json:"droppedNotifications"` // for a client that did not read
}

// Worker is one worker's state.
type Worker struct {
	Name        string `json:"name"`
	State       string `json:"state"`
	PID         int    `json:"pid,omitempty"`
	Version     string `json:"version,omitempty"` // as it announced itself
	Restarts    int    `json:"restarts"`
	SinceMillis int64  `json:"sinceMs"`           // time in this state; 0 when absent
	LastEnd     string `json:"lastEnd,omitempty"` // why it last ended or did not start
}

// Facade is one engine's entrance, and what is behind it. Texts are for people.
type Facade struct {
	Engine string `json:"engine"`
	FacadeStatus
	Note      string   `json:"note,omitempty"`      // why it is down, or not where its clients look for it
	Aliases   []string `json:"aliases,omitempty"`   // host:port besides, where OLLAMA_HOST sends this machine's clients
	AliasNote string   `json:"aliasNote,omitempty"` // why it does not serve where OLLAMA_HOST asks for it
	Engines   []Engine `json:"engines,omitempty"`   // absent while nobody has looked
}

// Engine is a place where an engine of a facade is looked for: a port of this
// machine, the main engine first, or another node that has models for it.
type Engine struct {
	Node   string `json:"node,omitempty"` // the other node's name
	Port   int    `json:"port,omitempty"` // of this machine
	Up     bool   `json:"up"`             // it answers
	Note   string `json:"note,omitempty"` // for people: why it is not up
	Models int    `json:"models"`
}

// Node states in HubStatus.
const (
	NodeStarting = "starting"
	NodeRunning  = "running"
	NodeDegraded = "degraded"
)

// HubStatus is the broker's status and what the hub thinks of it.
type HubStatus struct {
	State   string   `json:"state"`   // starting, running or degraded
	Reasons []string `json:"reasons"` // why it is degraded; never null
	HubPID  int      `json:"hubPid"`  // of nvpair serve
	Clients int      `json:"clients"` // connected to the hub, this one included

	BrokerRestarts int    `json:"brokerRestarts,omitempty"`
	BrokerLastEnd  string `json:"brokerLastEnd,omitempty"` // why it last ended unexpectedly

	Broker *Status `json:"broker"` // null while there is no broker
}

// HubBrokerLost says that the broker ended and what happens next.
type HubBrokerLost struct {
	Cause      string `json:"cause"`
	Restarting bool   `json:"restarting"`
}
