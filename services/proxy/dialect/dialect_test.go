// SPDX-License-Identifier: Apache-2.0

package dialect

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRequestsAreSortedByExactMethodAndPath(t *testing.T) {
	both := []string{Ollama, LMStudio}
	for _, tt := range []struct {
		engines      []string
		method, path string
		want         Class
	}{
		{both, "POST", "/v1/chat/completions", Inference},
		{both, "POST", "/v1/completions", Inference},
		{both, "POST", "/v1/embeddings", Inference},
		{both, "POST", "/v1/messages", Inference},
		{both, "POST", "/v1/messages/count_tokens", Inference}, // DEC-40
		{both, "POST", "/v1/responses", Inference},             // DEC-14
		{[]string{Ollama}, "POST", "/api/generate", Inference},
		{[]string{Ollama}, "POST", "/api/chat", Inference},
		{[]string{Ollama}, "POST", "/api/embed", Inference},
		{[]string{Ollama}, "POST", "/api/embeddings", Inference},
		{[]string{LMStudio}, "POST", "/api/generate", Control},
		{[]string{LMStudio}, "POST", "/api/chat", Control},
		{[]string{LMStudio}, "POST", "/api/v0/chat/completions", Inference}, // DEC-143
		{[]string{LMStudio}, "POST", "/api/v0/completions", Inference},
		{[]string{LMStudio}, "POST", "/api/v0/embeddings", Inference},
		{[]string{LMStudio}, "POST", "/api/v1/chat", Inference},
		{[]string{Ollama}, "POST", "/api/v0/chat/completions", Control},
		{[]string{Ollama}, "POST", "/api/v1/chat", Control},

		{both, "GET", "/v1/models", ListModels},
		{[]string{Ollama}, "GET", "/api/tags", ListTags},
		{[]string{LMStudio}, "GET", "/api/tags", Control},
		{both, "GET", "/v1/models/a/b", Read},
		{[]string{Ollama}, "POST", "/api/show", Read},
		{[]string{LMStudio}, "POST", "/api/show", Control},

		{both, "POST", "/v1/chat/completions/", Control}, // PX section 8: no tolerance
		{both, "POST", "/V1/chat/completions", Control},
		{both, "POST", "//v1/chat/completions", Control},
		{both, "post", "/v1/chat/completions", Control},
		{both, "GET", "/v1/chat/completions", Control},
		{both, "GET", "/api/chat", Control},
		{both, "HEAD", "/v1/models", Control},
		{both, "HEAD", "/api/tags", Control},
		{both, "POST", "/v1/models", Control},
		{both, "POST", "/api/tags", Control},
		{both, "OPTIONS", "/v1/chat/completions", Control},
		{both, "GET", "/v1/models/", Read},
		{both, "GET", "/api/ps", Control},
		{both, "GET", "/", Control},
		{both, "POST", "/api/pull", Control},
		{both, "DELETE", "/api/delete", Control},
		{both, "POST", "/v1/audio/transcriptions", Control},
		{both, "CONNECT", "", Control},
	} {
		for _, engine := range tt.engines {
			if got := Classify(engine, tt.method, tt.path); got != tt.want {
				t.Errorf("Classify(%s, %s %s) = %d; want %d", engine, tt.method, tt.path, got, tt.want)
			}
		}
	}
}

func TestOnlyMethodsWithoutEffectChangeNothing(t *testing.T) {
	for _, m := range []string{"GET", "HEAD", "OPTIONS"} {
		require.False(t, Changes(m), m)
	}
	for _, m := range []string{"POST", "PUT", "PATCH", "DELETE", "CONNECT", "TRACE", "get", "PROPFIND", ""} {
		require.True(t, Changes(m), m)
	}
}

func TestAnErrorIsInTheDialectOfItsPath(t *testing.T) {
	for _, tt := range []struct {
		path   string
		status int
		code   string
		want   string
	}{
		{"/api/chat", 502, "", `{"error":"text"}`},
		{"/", 502, "", `{"error":"text"}`},
		{"/v1", 502, "", `{"error":"text"}`},
		{"/api/version", 403, "loopback-only", `{"code":"loopback-only","error":"text"}`},
		{"/v1/models", 403, "loopback-only",
			`{"error":{"code":"loopback-only","message":"text","param":null,"type":"invalid_request_error"}}`},
		{"/v1/chat/completions", 503, "", `{"error":{"code":null,"message":"text","param":null,"type":"api_error"}}`},
		{"/v1/messages", 400, "", `{"error":{"message":"text","type":"invalid_request_error"},"type":"error"}`},
		{"/v1/messages", 403, "", `{"error":{"message":"text","type":"permission_error"},"type":"error"}`},
		{"/v1/messages", 413, "", `{"error":{"message":"text","type":"request_too_large"},"type":"error"}`},
		{"/v1/messages", 502, "", `{"error":{"message":"text","type":"api_error"},"type":"error"}`},
		{"/v1/messages/count_tokens", 503, "", `{"error":{"message":"text","type":"overloaded_error"},"type":"error"}`},
	} {
		if got := string(ErrorBody(tt.path, tt.status, "text", tt.code)); got != tt.want {
			t.Errorf("ErrorBody(%s, %d, %q) = %s; want %s", tt.path, tt.status, tt.code, got, tt.want)
		}
	}
}

func TestAnErrorsTextCannotBreakItsBody(t *testing.T) {
	text := "a \"quote\", a\nline, <b>, \x00 and \xff"
	for _, path := range []string{"/api/chat", "/v1/chat/completions", "/v1/messages"} {
		require.True(t, json.Valid(ErrorBody(path, http.StatusBadGateway, text, text)), path)
	}
}
