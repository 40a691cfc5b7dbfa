// SPDX-License-Identifier: Apache-2.0

// Package workload is the agreement about jobs: what a proxy, an ingress or a
// peer reports of one, what the broker passes on, and what identifies it.
package workload

import "encoding/json"

// Notifications that report a job; their payload is Event. The method is a hint:
// what counts is the state in the payload (WL-16).
const (
	MethodSubmitted = "workload:submitted"
	MethodStarted   = "workload:started"
	MethodCompleted = "workload:completed"
	MethodErrored   = "workload:errored"
)

// Notifications that are the same on every link.
const (
	MethodUpsert = "workloads:upsert" // Event; up from the workload manager, and from the broker to client and scheduler
	MethodRemove = "workloads:remove" // Removal; in all directions
)

// States (WL-15). The set is open: readers keep a state they do not know and rank
// it below all others.
const (
	StateQueued    = "queued"
	StateRunning   = "running"
	StateCompleted = "completed"
	StateFailed    = "failed"
	StateCancelled = "cancelled" // the requester stopped waiting; never shown as failed
)

// RankTerminal is the rank of every terminal state.
const RankTerminal = 3

// Rank orders states by how far a job has come (CT-14): unknown 0, queued 1,
// running 2, terminal RankTerminal.
func Rank(state string) int {
	switch state {
	case StateQueued:
		return 1
	case StateRunning:
		return 2
	case StateCompleted, StateFailed, StateCancelled:
		return RankTerminal
	}
	return 0
}

// Method returns the method that normally carries a state, "" for an unknown one.
func Method(state string) string {
	switch state {
	case StateQueued:
		return MethodSubmitted
	case StateRunning:
		return MethodStarted
	case StateCompleted:
		return MethodCompleted
	case StateFailed, StateCancelled:
		return MethodErrored
	}
	return ""
}

// Info is the workloadInfo object. Members are only ever added (WL-12); who
// relays one keeps those that it does not know.
type Info struct {
	ID              string  `json:"id"`                    // chosen by the origin
	Model           string  `json:"model"`                 // as the requester spelled it
	Engine          string  `json:"engine"`                // any value is legal
	RunID           string  `json:"runId,omitempty"`       // of the producing process
	State           string  `json:"state"`                 // one of State*, or a later addition
	OriginatedFrom  string  `json:"originatedFrom"`        // uuid of the node where the work entered the cluster
	ScheduledOn     string  `json:"scheduledOn,omitempty"` // uuid of the node it was routed to; absent until then
	CreatedMillis   int64   `json:"createdAt"`             // Unix milliseconds; also the generation of the record
	StartedMillis   *int64  `json:"startedAt"`             // null until it runs, never left out
	CompletedMillis *int64  `json:"completedAt"`           // null until it ends, never left out
	Error           *string `json:"error"`                 // for people; null for none, never left out
	RequesterID     *string `json:"requesterId"`           // null for none, never left out
	Seq             int64   `json:"seq,omitempty"`         // counts this job's events from 1; absent is 0
}

// Event is the payload of the methods that report a job.
type Event struct {
	Info json.RawMessage `json:"workloadInfo"` // an Info, with whatever else its producer wrote
	// IngressAgeMillis is set only by the broker on what it replays to a new
	// workload manager, and only for a job that entered through the ingress:
	// the time since its producer last mentioned it. It is for that worker
	// alone and goes to no peer (DEC-91).
	IngressAgeMillis *int64 `json:"ingressMsSince,omitempty"`
}

// Removal is the payload of workloads:remove. It names neither engine nor run:
// every job with that origin and id goes (WL-21).
type Removal struct {
	ID             string `json:"workloadId"`
	OriginatedFrom string `json:"originatedFrom,omitempty"` // uuid; empty matches nothing (WL-18)
}

// Key identifies a job (WL-20).
type Key struct{ OriginatedFrom, Engine, RunID, ID string }

// Pair is what a removal names.
type Pair struct{ OriginatedFrom, ID string }

// KeyOf returns the identity of a job.
func KeyOf(i Info) Key { return Key{i.OriginatedFrom, i.Engine, i.RunID, i.ID} }

// Pair returns the part of an identity that a removal names.
func (k Key) Pair() Pair { return Pair{k.OriginatedFrom, k.ID} }
