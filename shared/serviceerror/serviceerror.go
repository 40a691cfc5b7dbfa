// SPDX-License-Identifier: Apache-2.0

// Package serviceerror is the agreement about service errors: conditions that a
// person should see, reported by any process and kept by nvpair-errors.
package serviceerror

import "errors"

// Methods and notifications.
const (
	MethodGetInitial = "errors:get-initial" // -> []ServiceError
	MethodReport     = "errors:report"      // ServiceError
	MethodClear      = "errors:clear"       // Clear
	NotifyUpdate     = "errors:update"      // []ServiceError, the whole list
)

// Values in use. The sets are open: readers show what they do not know.
const (
	SeverityError   = "error"
	SeverityWarning = "warning"
	SeverityInfo    = "info"

	ActionNone = "none"
)

// MaxEntries bounds a node's list (DEC-116).
const MaxEntries = 1000

// CrashID is the id under which the death of a worker is reported (BR-12).
func CrashID(worker string) string { return "supervisor:subprocess-crashed:" + worker }

// ServiceError is one entry. No secret, prompt or response may be in it (ER-12).
// Optional fields are free text and pass through unchanged.
type ServiceError struct {
	ID              string `json:"id"`        // stable within a node: producer:class[:context]
	Message         string `json:"message"`   // for people
	TimestampMillis int64  `json:"timestamp"` // Unix milliseconds of the emit; 0 = to be filled by the broker
	NodeID          string `json:"nodeId,omitempty"`
	Severity        string `json:"severity,omitempty"`
	Action          string `json:"action,omitempty"`
	EngineType      string `json:"engineType,omitempty"`
	Operation       string `json:"operation,omitempty"`
	ModelName       string `json:"modelName,omitempty"`
}

var (
	errNoID      = errors.New(`"id" is required`)
	errNoMessage = errors.New(`"message" is required`)
)

// Validate reports what makes an entry unfit for the store (ER-33).
func (e ServiceError) Validate() error {
	switch {
	case e.ID == "":
		return errNoID
	case e.Message == "":
		return errNoMessage
	}
	return nil
}

// Clear is the payload of errors:clear.
type Clear struct {
	ID        string `json:"id"`
	ClearedBy string `json:"clearedBy,omitempty"` // informational
}

// Validate reports a missing id.
func (c Clear) Validate() error {
	if c.ID == "" {
		return errNoID
	}
	return nil
}
