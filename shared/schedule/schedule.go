// SPDX-License-Identifier: Apache-2.0

// Package schedule is the agreement about the order in which nodes are preferred
// for new jobs: what the broker tells the scheduler and what it gets back.
package schedule

// NotifyTelemetry is a notification of the broker, besides discovery:nodes-changed
// and those of package workload. Its payload is discovery.Telemetry.
const NotifyTelemetry = "scheduler:telemetry"

// NotifyPriority is the scheduler's one output, sent once an engine.
const NotifyPriority = "schedule:priority" // Priority

// Requests of the broker.
const (
	MethodGetStatus   = "scheduler:get-status"   // -> Status
	MethodGetInterval = "scheduler:get-interval" // -> Interval
	MethodSetInterval = "scheduler:set-interval" // Interval -> Interval, as it is in effect
	MethodTick        = "scheduler:tick"         // -> Ticked
)

// MaxNodes bounds a ranking (DEC-137).
const MaxNodes = 512

// Pressures of a node's GPUs, PressureNone to PressureMost.
const (
	PressureNone    = 0
	PressureUnknown = 1 // also of a node whose load is not known (JS-29)
	PressureMost    = 3
)

// NodeRank is one node of a ranking.
type NodeRank struct {
	ID          string `json:"id"`          // host uuid
	Pending     int    `json:"pending"`     // queued and running jobs, of all engines
	GPUPressure int    `json:"gpuPressure"` // PressureNone..PressureMost
	Rank        int    `json:"rank"`        // position, from 0
}

// Ranking is an order of nodes, the best first.
type Ranking struct {
	Nodes []string   `json:"nodes"` // host uuids; never null
	Ranks []NodeRank `json:"ranks,omitempty"`
}

// Priority is the payload of schedule:priority. Its reader numbers it.
type Priority struct {
	Engine string `json:"engine"`
	Ranking
}

// SetPriority is a ranking as the proxy takes it, the params of node/set-priority:
// one with a lower or equal generation than it has changes nothing (PX-27).
type SetPriority struct {
	Generation int64 `json:"generation"` // from 1
	Ranking
}

// Interval is the result of get-interval, and params and result of set-interval.
type Interval struct {
	Millis int64 `json:"interval_ms"`
}

// Ticked is the result of tick.
type Ticked struct {
	Ticked bool `json:"ticked"`
}

// EngineStatus is what was last delivered for an engine.
type EngineStatus struct {
	Engine            string     `json:"engine"`
	Emitted           []NodeRank `json:"emitted"`       // never null
	LastEmittedMillis int64      `json:"lastEmittedAt"` // Unix milliseconds; 0 = never
}

// Status is the result of get-status.
type Status struct {
	IntervalMillis int64                   `json:"interval_ms"`
	Engines        map[string]EngineStatus `json:"engines"` // every engine, by id
}
