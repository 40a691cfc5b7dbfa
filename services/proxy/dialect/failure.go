// SPDX-License-Identifier: Apache-2.0

package dialect

import (
	"encoding/json"
	"net/http"
	"strings"
)

// ErrorBody returns the body of an error that the router itself answers with, in
// the dialect of the path (DEC-144). code may be empty.
func ErrorBody(path string, status int, message, code string) []byte {
	var v any
	switch {
	case strings.HasPrefix(path, "/v1/messages"):
		v = map[string]any{"type": "error", "error": map[string]any{"type": anthropicType(status), "message": message}}
	case strings.HasPrefix(path, "/v1/"):
		v = map[string]any{"error": map[string]any{
			"message": message, "type": openAIType(status), "param": nil, "code": orNil(code)}}
	case code != "":
		v = map[string]any{"error": message, "code": code}
	default:
		v = map[string]any{"error": message}
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and nils always encode
	}
	return b
}

func anthropicType(status int) string {
	switch {
	case status == http.StatusForbidden:
		return "permission_error"
	case status == http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case status == http.StatusServiceUnavailable:
		return "overloaded_error"
	case status < 500:
		return "invalid_request_error"
	}
	return "api_error"
}

func openAIType(status int) string {
	if status < 500 {
		return "invalid_request_error"
	}
	return "api_error"
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}
