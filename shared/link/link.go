// SPDX-License-Identifier: Apache-2.0

// Package link names what is common to the links of all processes: the control
// methods and their payloads, and the product's own error codes.
package link

// Control methods. Their direction is seen from the worker.
const (
	MethodReady       = "ready"         // out: Ready, once a worker's own set-up is done
	MethodHello       = "worker/hello"  // out: Hello, promises to answer pings (DEC-53)
	MethodPing        = "worker/ping"   // in: Ping
	MethodPong        = "worker/pong"   // out: Ping with the same number
	MethodSetLogLevel = "log/set-level" // in: LogLevel, request or notification
	MethodShutdown    = "shutdown"      // in: request, answered null before the end
)

// CodePortTaken says that facade/enable failed only because its port is taken.
const CodePortTaken = -32010

// Ready is the payload of a worker's ready notification.
type Ready struct {
	Version string `json:"version"`
}

// Hello is the payload of worker/hello.
type Hello struct {
	Liveness int    `json:"liveness"` // version of the ping protocol, 1
	Version  string `json:"version"`
}

// Ping is the payload of worker/ping and worker/pong.
type Ping struct {
	Seq int64 `json:"seq"` // counts from 1 in one process
}

// LogLevel is the payload of log/set-level and its result.
type LogLevel struct {
	Level string `json:"level"` // debug, info, warn or error
}
