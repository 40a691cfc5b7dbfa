// SPDX-License-Identifier: Apache-2.0

// Package dialect knows how the engines' HTTP interfaces are spoken: which
// requests are inference, where a model is named and how names compare, what an
// error looks like, and how a stream says that it is whole. Pure functions.
package dialect

import (
	"net/http"
	"strings"
)

// Engine ids whose dialects differ.
const (
	Ollama   = "ollama"
	LMStudio = "lmstudio"
)

// PathResponses makes answers that later requests can continue.
const PathResponses = "/v1/responses"

// Class is what the router does with a request.
type Class int

// Classes. The zero value is Control.
const (
	Control    Class = iota // verbatim to one node
	Read                    // names a model and changes nothing: to an owner, this node first
	Inference               // routed by model, retried before its first byte
	ListTags                // GET /api/tags: merged over all nodes
	ListModels              // GET /v1/models: merged over all nodes
)

// Classify sorts a request by exact method and decoded path (PX section 8,
// DEC-14, DEC-40, DEC-143).
func Classify(engine, method, path string) Class {
	switch method {
	case http.MethodPost:
		return classifyPost(engine, path)
	case http.MethodGet:
		switch {
		case path == "/v1/models":
			return ListModels
		case path == "/api/tags" && engine == Ollama:
			return ListTags
		case strings.HasPrefix(path, "/v1/models/"):
			return Read
		}
	}
	return Control
}

func classifyPost(engine, path string) Class {
	switch path {
	case "/v1/chat/completions", "/v1/completions", "/v1/embeddings",
		"/v1/messages", "/v1/messages/count_tokens", PathResponses:
		return Inference
	case "/api/generate", "/api/chat", "/api/embeddings", "/api/embed":
		if engine == Ollama {
			return Inference
		}
	case "/api/v0/chat/completions", "/api/v0/completions", "/api/v0/embeddings", "/api/v1/chat":
		if engine == LMStudio {
			return Inference
		}
	case "/api/show":
		if engine == Ollama {
			return Read
		}
	}
	return Control
}

// Changes reports whether a control request may change its node: such a request
// goes to this node's own engine only (DEC-9).
func Changes(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}
