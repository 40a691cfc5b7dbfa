// SPDX-License-Identifier: Apache-2.0

package engine

import "testing"

// recordedBlob is what the recorded upload consisted of; only its digest counts.
const recordedBlob = "demo"

// recordedDigest is the SHA-256 of recordedBlob.
const recordedDigest = "2a97516c354b68848cdbd8f54a226a0a55b21ed138e207ad6c5cbb9c00aa5aea"

const hi = `"messages":[{"role":"user","content":"hi"}]`

func ollamaModels() Config {
	return Config{Models: []Model{
		{Name: "slow", Size: 619309211, Context: 65536}, {Name: "tiny", Size: 132183, Context: 4096},
	}}
}

func ollamaGolden() []golden {
	c, none := ollamaModels(), Config{Models: []Model{}}
	blob := "/api/blobs/sha256:" + recordedDigest
	preflight := " | Access-Control-Request-Method: POST"
	pulls := Config{PullTick: 1, PullSteps: 5, Models: []Model{{Name: "two", Size: 619309211}}}
	return []golden{
		{file: "ollama/root-get", request: "GET /"},
		{file: "ollama/root-head", request: "HEAD /"},
		{file: "ollama/version", request: "GET /api/version"},
		{file: "ollama/tags-empty", cfg: none, request: "GET /api/tags"},
		{file: "ollama/v1-models-empty", cfg: none, request: "GET /v1/models"},
		{file: "ollama/ps-empty", request: "GET /api/ps"},
		{file: "ollama/tags", cfg: c, request: "GET /api/tags"},
		{file: "ollama/tags-head", cfg: c, request: "HEAD /api/tags"},
		{file: "ollama/v1-models", cfg: c, request: "GET /v1/models"},
		{file: "ollama/v1-model", cfg: c, request: "GET /v1/models/tiny"},
		{file: "ollama/v1-model-404", cfg: c, request: "GET /v1/models/nope"},
		{file: "ollama/show", cfg: c, request: "POST /api/show", body: `{"model":"tiny"}`},
		{file: "ollama/show-404", cfg: c, request: "POST /api/show", body: `{"model":"nope"}`},
		{file: "ollama/copy-200", cfg: c, request: "POST /api/copy", body: `{"source":"tiny","destination":"copy"}`},
		{file: "ollama/copy-404", cfg: c, request: "POST /api/copy", body: `{"source":"nope","destination":"copy"}`},
		{file: "ollama/delete-200", cfg: c, request: "DELETE /api/delete", body: `{"model":"tiny"}`},
		{file: "ollama/delete-404", cfg: c, request: "DELETE /api/delete", body: `{"model":"copy"}`},
		{file: "ollama/blob-head-404", request: "HEAD " + blob},
		{file: "ollama/blob-post-mismatch-400", request: "POST /api/blobs/sha256:582f501ab160dbb6bed304d4d66d0fed9d83a1cbc0fe80ad955b81b77e31e9ca",
			body: "\xfa"},
		{file: "ollama/blob-post-201", request: "POST " + blob, body: recordedBlob},
		{file: "ollama/blob-head-200", do: ask("POST "+blob, recordedBlob), request: "HEAD " + blob},
		{file: "ollama/blob-post-exists-200-close", do: ask("POST "+blob, recordedBlob), request: "POST " + blob,
			body: recordedBlob},
		{file: "ollama/create-stream", request: "POST /api/create", body: `{"model":"x"}`},
		{file: "ollama/create-error-in-stream", request: "POST /api/create", body: `{"model":"x","from":"nope"}`},
		{file: "ollama/pull-error-in-stream", do: faulty(Fault{Kind: KindPull, Form: "error"}), request: "POST /api/pull",
			body: `{"model":"nosuch"}`},
		{file: "ollama/pull-error-nostream-500", do: faulty(Fault{Kind: KindPull, Form: "error"}), request: "POST /api/pull",
			body: `{"model":"nosuch","stream":false}`},
		{file: "ollama/pull-already-present", cfg: pulls, request: "POST /api/pull", body: `{"model":"two"}`},
		{file: "ollama/unknown-path-404", request: "GET /nope"},
		{file: "ollama/wrong-method-405", request: "GET /api/chat"},
		{file: "ollama/ps-head-405", request: "HEAD /api/ps"},
		{file: "ollama/trailing-slash-301", request: "GET /api/tags/"},
		{file: "ollama/host-refused-403", request: "GET /api/version | Host: evil.example"},
		{file: "ollama/origin-refused-403", request: "GET /api/tags | Origin: https://evil.example"},
		{file: "ollama/origin-allowed-200", cfg: c, request: "GET /api/tags | Origin: http://localhost:3000"},
		{file: "ollama/preflight-204", request: "OPTIONS /api/chat | Origin: http://localhost:3000" + preflight},
		{file: "ollama/preflight-refused-403", request: "OPTIONS /api/chat | Origin: https://evil.example" + preflight},
	}
}

func ollamaRunGolden() []golden {
	c := ollamaModels()
	died := func(after int) func(*testing.T, *Engine) {
		return faulty(Fault{Kind: KindStreamError, After: after})
	}
	busy, failed := faulty(Fault{Kind: KindBusy}), faulty(Fault{Kind: KindLoadFailed})
	return []golden{
		{file: "ollama/generate-load", cfg: c, request: "POST /api/generate", body: `{"model":"tiny"}`},
		{file: "ollama/ps", cfg: c, do: ask("POST /api/generate", `{"model":"tiny"}`), request: "GET /api/ps"},
		{file: "ollama/ps-keep-alive-forever", cfg: c, do: ask("POST /api/generate", `{"model":"tiny","keep_alive":-1}`),
			request: "GET /api/ps"},
		{file: "ollama/generate-unload", cfg: c, do: ask("POST /api/generate", `{"model":"tiny"}`),
			request: "POST /api/generate", body: `{"model":"tiny","keep_alive":0}`},
		{file: "ollama/generate-stream", cfg: c, request: "POST /api/generate",
			body: `{"model":"tiny","prompt":"hi","options":{"num_predict":3}}`},
		{file: "ollama/generate", cfg: c, request: "POST /api/generate",
			body: `{"model":"tiny","prompt":"hi","stream":false,"options":{"num_predict":3}}`},
		{file: "ollama/chat-stream", cfg: c, request: "POST /api/chat",
			body: `{"model":"tiny",` + hi + `,"options":{"num_predict":3}}`},
		{file: "ollama/chat", cfg: c, request: "POST /api/chat",
			body: `{"model":"tiny",` + hi + `,"stream":false,"options":{"num_predict":3}}`},
		{file: "ollama/v1-chat-stream", cfg: c, request: "POST /v1/chat/completions",
			body: `{"model":"tiny",` + hi + `,"max_tokens":3,"stream":true}`},
		{file: "ollama/v1-chat-stream-usage", cfg: c, request: "POST /v1/chat/completions",
			body: `{"model":"tiny",` + hi + `,"max_tokens":2,"stream":true,"stream_options":{"include_usage":true}}`},
		{file: "ollama/v1-chat", cfg: c, request: "POST /v1/chat/completions", body: `{"model":"tiny",` + hi + `,"max_tokens":3}`},
		{file: "ollama/v1-completions-stream", cfg: c, request: "POST /v1/completions",
			body: `{"model":"tiny","prompt":"hi","max_tokens":2,"stream":true}`},
		{file: "ollama/v1-messages-stream", cfg: c, request: "POST /v1/messages",
			body: `{"model":"tiny","max_tokens":3,` + hi + `,"stream":true}`},
		{file: "ollama/v1-messages", cfg: c, request: "POST /v1/messages", body: `{"model":"tiny","max_tokens":3,` + hi + `}`},
		{file: "ollama/v1-responses-stream", cfg: c, request: "POST /v1/responses",
			body: `{"model":"tiny","max_output_tokens":2,"input":"hi","stream":true}`},
		{file: "ollama/chat-404", cfg: c, request: "POST /api/chat", body: `{"model":"nope",` + hi + `}`},
		{file: "ollama/v1-chat-404", cfg: c, request: "POST /v1/chat/completions", body: `{"model":"nope",` + hi + `,"stream":true}`},
		{file: "ollama/v1-messages-404", cfg: c, request: "POST /v1/messages", body: `{"model":"nope","max_tokens":3,` + hi + `}`},
		{file: "ollama/generate-empty-404", cfg: c, request: "POST /api/generate", body: `{}`},
		{file: "ollama/chat-empty-400", cfg: c, request: "POST /api/chat", body: `{}`},
		{file: "ollama/chat-bad-json-400", cfg: c, request: "POST /api/chat", body: `{bad`},
		{file: "ollama/chat-no-body-400", cfg: c, request: "POST /api/chat"},
		{file: "ollama/v1-chat-400", cfg: c, request: "POST /v1/chat/completions", body: `{"model":"tiny","messages":[]}`},
		{file: "ollama/embed-not-embedding-model-501", cfg: c, request: "POST /api/embed", body: `{"model":"tiny","input":"x"}`},
		{file: "ollama/chat-busy-503", cfg: c, do: busy, request: "POST /api/chat", body: `{"model":"tiny",` + hi + `}`},
		{file: "ollama/v1-chat-busy-503", cfg: c, do: busy, request: "POST /v1/chat/completions",
			body: `{"model":"tiny",` + hi + `,"stream":true}`},
		{file: "ollama/v1-messages-busy-503", cfg: c, do: busy, request: "POST /v1/messages",
			body: `{"model":"tiny","max_tokens":3,` + hi + `,"stream":true}`},
		{file: "ollama/ps-after-runner-died", cfg: c, request: "GET /api/ps", do: func(t *testing.T, e *Engine) {
			t.Helper()
			died(3)(t, e)
			exchangeRaw(t, e, "POST /api/chat", `{"model":"slow",`+hi+`}`)
		}},
		{file: "ollama/generate-overflow-400", cfg: c, request: "POST /api/generate",
			body: `{"model":"tiny","truncate":false,"prompt":"` + repeat("x ", 6000) + `"}`},
		{file: "ollama/chat-load-failed-500", cfg: c, do: failed, request: "POST /api/chat", body: `{"model":"tiny",` + hi + `}`},
		{file: "ollama/v1-chat-load-failed-500", cfg: c, do: failed, request: "POST /v1/chat/completions",
			body: `{"model":"tiny",` + hi + `,"stream":true}`},
		{file: "ollama/chat-stream-runner-died", cfg: c, do: died(3), request: "POST /api/chat", body: `{"model":"slow",` + hi + `}`},
		{file: "ollama/v1-chat-stream-runner-died", cfg: c, do: died(3), request: "POST /v1/chat/completions",
			body: `{"model":"slow",` + hi + `,"stream":true}`},
		{file: "ollama/v1-messages-stream-runner-died", cfg: c, do: died(4), request: "POST /v1/messages",
			body: `{"model":"slow","max_tokens":9,` + hi + `,"stream":true}`},
	}
}
