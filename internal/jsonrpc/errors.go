// SPDX-License-Identifier: Apache-2.0

package jsonrpc

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Codes that JSON-RPC 2.0 defines and this package or its users answer with.
const (
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
	CodeFailed         = -32000 // operational failure, see the message
)

var (
	// ErrClosed ends every call that is pending when the link closes, and
	// every later one (WR-26 fixes the text).
	ErrClosed = errors.New("jsonrpc peer closed")
	// ErrQueueFull means that the peer does not read: the frame was not queued.
	ErrQueueFull = errors.New("peer does not read, out-queue is full")
	// ErrTimeout means that a call's deadline passed without a response.
	ErrTimeout = errors.New("no answer in time")
	// ErrTooManyCalls means that Config.MaxCalls calls are already waiting.
	ErrTooManyCalls = errors.New("too many calls are waiting")
)

// Error is the error object of a response.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *Error) Error() string { return fmt.Sprintf("error %d: %s", e.Code, e.Message) }

// Errorf returns an Error with a formatted message.
func Errorf(code int, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// MethodNotFound is the answer to a request nobody here serves (WR-36).
func MethodNotFound(method string) *Error {
	return Errorf(CodeMethodNotFound, "method not found: %s", method)
}

// InvalidParams is the answer to params that do not decode or miss something.
func InvalidParams(format string, args ...any) *Error {
	return Errorf(CodeInvalidParams, "invalid params: "+format, args...)
}
