// SPDX-License-Identifier: Apache-2.0

package engine

func lmstudioModels() Config {
	return Config{Dialect: LMStudio, Models: []Model{
		{Name: "example-1b-instruct", Size: 807694464, Context: 131072, Loaded: true},
		{Name: "text-embedding-example-v1", Type: "embedding", Size: 274290560, Context: 2048},
	}}
}

func lmstudioGolden() []golden {
	c := lmstudioModels()
	cold := lmstudioModels()
	cold.Models[0].Loaded = false
	off := Config{Dialect: LMStudio, Models: cold.Models, JITOff: true}
	three := Config{Dialect: LMStudio, Models: []Model{
		{Name: "example-1b-instruct", Context: 131072, Loaded: true}, {Name: "example-vl-4b", Type: "vlm", Context: 32768},
		{Name: "text-embedding-example-v1", Type: "embedding", Context: 2048}}}
	hello := cold
	hello.Pace.Chunks = 1
	return []golden{
		{file: "lmstudio/greeting", cfg: c, request: "GET /lmstudio-greeting"},
		{file: "lmstudio/unknown-endpoint-200", cfg: c, request: "GET /props"},
		{file: "lmstudio/v1-models", cfg: c, request: "GET /v1/models"},
		{file: "lmstudio/v1-models-empty", cfg: off, request: "GET /v1/models"},
		{file: "lmstudio/api-v0-models", cfg: three, request: "GET /api/v0/models"},
		{file: "lmstudio/api-v1-models", cfg: c, do: ask("POST /api/v1/models/load",
			`{"model":"example-1b-instruct","context_length":8192}`), request: "GET /api/v1/models"},
		{file: "lmstudio/model-not-found-404", cfg: three, request: "POST /v1/chat/completions", body: `{"model":"nope",` + hi + `}`},
		{file: "lmstudio/no-model-loaded-404", cfg: off, request: "POST /v1/chat/completions", body: `{"model":"nope",` + hi + `}`},
		{file: "lmstudio/api-v1-load", cfg: cold, request: "POST /api/v1/models/load", body: `{"model":"example-1b-instruct"}`},
		{file: "lmstudio/api-v1-unload", cfg: c, request: "POST /api/v1/models/unload",
			body: `{"instance_id":"example-1b-instruct"}`},
		{file: "lmstudio/api-v1-download", cfg: Config{Dialect: LMStudio, Models: []Model{}},
			request: "POST /api/v1/models/download", body: `{"model":"example"}`},
		{file: "lmstudio/api-v1-download-status", cfg: Config{Dialect: LMStudio, Models: []Model{}},
			do:      ask("POST /api/v1/models/download", `{"model":"example"}`),
			request: "GET /api/v1/models/download/status/job_" + Model{Name: "example"}.complete().Digest[:10]},
		{file: "lmstudio/api-v1-invalid-400", cfg: c, request: "POST /api/v1/chat", body: `{"model":"x","input":"hi","seed":1}`},
		{file: "lmstudio/v1-chat-stream", cfg: withChunks(c, 2), request: "POST /v1/chat/completions",
			body: `{"model":"example-1b-instruct",` + hi + `,"stream":true}`},
		{file: "lmstudio/v1-chat-stream-error", cfg: Config{Dialect: LMStudio, Models: []Model{{Name: "m", Context: 2}}},
			request: "POST /v1/chat/completions", body: `{"model":"m",` + hi + `,"stream":true}`},
		{file: "lmstudio/api-v1-chat-stream-with-load", cfg: hello, request: "POST /api/v1/chat",
			body: `{"model":"example-1b-instruct","input":"hi","stream":true}`},
	}
}

func withChunks(c Config, n int) Config {
	c.Pace.Chunks = n
	return c
}

func llamaGolden() []golden {
	c := Config{Dialect: LlamaCpp, Models: []Model{{Name: "tiny", Context: 4096, Loaded: true}}, Slots: 2}
	small := Config{Dialect: LlamaCpp, Models: []Model{{Name: "tiny", Context: 2048}}}
	key := c
	key.APIKey = "secret"
	router := Config{Dialect: LlamaCppRouter, Models: []Model{{Name: "alpha"}, {Name: "beta"}}, MaxLoaded: 1}
	long := `{"messages":[{"role":"user","content":"` + repeat("x ", 3000) + `"}],"stream":true}`
	load, chat := ask("POST /models/load", `{"model":"beta"}`), `{"model":"any-name",`+hi
	broken := faulty(Fault{Kind: KindStreamError, After: 4, Message: "Failed to parse input at pos 0: %kJy"})
	return []golden{
		{file: "llamacpp/health-ok", cfg: c, request: "GET /health"},
		{file: "llamacpp/health-head", cfg: c, request: "HEAD /health"},
		{file: "llamacpp/v1-models", cfg: c, request: "GET /v1/models"},
		{file: "llamacpp/api-tags", cfg: c, request: "GET /api/tags"},
		{file: "llamacpp/slots-idle", cfg: c, request: "GET /slots"},
		{file: "llamacpp/metrics-off-501", cfg: c, request: "GET /metrics"},
		{file: "llamacpp/health-loading-503", cfg: c, do: loading, request: "GET /health"},
		{file: "llamacpp/health-loading-head-503", cfg: c, do: loading, request: "HEAD /health"},
		{file: "llamacpp/chat-loading-503", cfg: c, do: loading, request: "POST /v1/chat/completions", body: chat + "}"},
		{file: "llamacpp/chat-overflow-400", cfg: small, request: "POST /v1/chat/completions", body: long},
		{file: "llamacpp/v1-chat", cfg: c, request: "POST /v1/chat/completions", body: chat + `,"max_tokens":3}`},
		{file: "llamacpp/api-chat", cfg: c, request: "POST /api/chat", body: chat + `,"max_tokens":2}`},
		{file: "llamacpp/v1-chat-stream", cfg: c, request: "POST /v1/chat/completions",
			body: chat + `,"max_tokens":3,"stream":true}`},
		{file: "llamacpp/v1-chat-stream-usage", cfg: c, request: "POST /v1/chat/completions",
			body: `{` + hi + `,"max_tokens":2,"stream":true,"stream_options":{"include_usage":true}}`},
		{file: "llamacpp/v1-completions-stream", cfg: c, request: "POST /v1/completions",
			body: `{"prompt":"hi","max_tokens":2,"stream":true}`},
		{file: "llamacpp/completion-native-stream", cfg: c, request: "POST /completion",
			body: `{"prompt":"hi","n_predict":2,"stream":true}`},
		{file: "llamacpp/v1-messages-stream", cfg: c, request: "POST /v1/messages",
			body: `{"model":"x","max_tokens":3,` + hi + `,"stream":true}`},
		{file: "llamacpp/v1-messages", cfg: c, request: "POST /v1/messages", body: `{"model":"x","max_tokens":3,` + hi + `}`},
		{file: "llamacpp/v1-messages-count-tokens", cfg: c, request: "POST /v1/messages/count_tokens",
			body: `{"model":"x",` + hi + `}`},
		{file: "llamacpp/v1-responses-stream", cfg: c, request: "POST /v1/responses",
			body: `{"model":"x","max_output_tokens":2,"input":"hi","stream":true}`},
		{file: "llamacpp/v1-chat-stream-error", cfg: c, do: broken, request: "POST /v1/chat/completions",
			body: chat + `,"stream":true}`},
		{file: "llamacpp/v1-messages-stream-error", cfg: c, request: "POST /v1/messages", body: `{"max_tokens":9,` + hi + `,"stream":true}`,
			do: faulty(Fault{Kind: KindStreamError, After: 2, Message: "Failed to parse input at pos 0: ah"})},
		{file: "llamacpp/v1-responses-stream-error", cfg: c, request: "POST /v1/responses", body: `{"input":"hi","stream":true}`,
			do: faulty(Fault{Kind: KindStreamError, After: 1, Message: "Failed to parse input at pos 0: x"})},
		{file: "llamacpp/v1-chat-empty-400", cfg: c, request: "POST /v1/chat/completions", body: `{}`},
		{file: "llamacpp/bad-json-500", cfg: c, request: "POST /v1/chat/completions", body: `{bad`},
		{file: "llamacpp/unknown-path-404", cfg: c, request: "GET /nope"},
		{file: "llamacpp/wrong-method-404", cfg: c, request: "GET /v1/chat/completions"},
		{file: "llamacpp/v1-embeddings-501", cfg: c, request: "POST /v1/embeddings", body: `{"input":"x"}`},
		{file: "llamacpp/origin-reflected", cfg: c, request: "GET /health | Origin: https://evil.example"},
		{file: "llamacpp/preflight-200", cfg: c, request: "OPTIONS /v1/chat/completions | Origin: https://evil.example"},
		{file: "llamacpp/no-key-401", cfg: key, request: "POST /v1/chat/completions", body: chat + "}"},
		{file: "llamacpp/unknown-path-no-key-401", cfg: key, request: "GET /nope"},
		{file: "llamacpp/props", cfg: c, request: "GET /props"},
		{file: "llamacpp/router-v1-models", cfg: router, request: "GET /v1/models"},
		{file: "llamacpp/router-props", cfg: router, request: "GET /props"},
		{file: "llamacpp/router-unknown-model-400", cfg: router, request: "POST /v1/chat/completions", body: `{"model":"nope",` + hi + `}`},
		{file: "llamacpp/router-no-model-400", cfg: router, request: "POST /v1/chat/completions", body: `{` + hi + `}`},
		{file: "llamacpp/router-not-loaded-400", cfg: router, request: "POST /v1/chat/completions?autoload=false",
			body: `{"model":"alpha",` + hi + `}`},
		{file: "llamacpp/router-v1-chat-stream", cfg: router, request: "POST /v1/chat/completions",
			body: `{"model":"alpha",` + hi + `,"max_tokens":2,"stream":true}`},
		{file: "llamacpp/router-load", cfg: router, request: "POST /models/load", body: `{"model":"beta"}`},
		{file: "llamacpp/router-v1-models-loaded", cfg: router, do: load, request: "GET /v1/models"},
		{file: "llamacpp/router-load-again-400", cfg: router, do: load, request: "POST /models/load", body: `{"model":"beta"}`},
		{file: "llamacpp/router-load-unknown-404", cfg: router, request: "POST /models/load", body: `{"model":"zz"}`},
		{file: "llamacpp/router-unload", cfg: router, do: load, request: "POST /models/unload", body: `{"model":"beta"}`},
		{file: "llamacpp/router-unload-again-400", cfg: router, request: "POST /models/unload", body: `{"model":"beta"}`},
	}
}

func vllmGolden() []golden {
	c := Config{Dialect: VLLM, Models: []Model{{Name: "example/model-1b"}}}
	key := c
	key.APIKey = "secret"
	chat := `{"model":"example/model-1b",` + hi + `,"stream":true}`
	return []golden{
		{file: "vllm/health-200", cfg: c, request: "GET /health"},
		{file: "vllm/health-engine-dead-503", cfg: c, do: faulty(Fault{Kind: KindDead}), request: "GET /health"},
		{file: "vllm/version", cfg: c, request: "GET /version"},
		{file: "vllm/load", cfg: c, request: "GET /load"},
		{file: "vllm/is-sleeping", cfg: c, request: "GET /is_sleeping"},
		{file: "vllm/v1-models", cfg: c, request: "GET /v1/models"},
		{file: "vllm/model-not-found-404", cfg: c, request: "POST /v1/chat/completions", body: `{"model":"nope",` + hi + `}`},
		{file: "vllm/no-key-401", cfg: key, request: "POST /v1/chat/completions", body: chat},
		{file: "vllm/unknown-path-404", cfg: c, request: "GET /nope"},
		{file: "vllm/wrong-method-405", cfg: c, request: "POST /health"},
		{file: "vllm/v1-chat-stream", cfg: withChunks(c, 2), request: "POST /v1/chat/completions", body: chat},
		{file: "vllm/v1-chat-stream-error", cfg: c, do: faulty(Fault{Kind: KindStreamError, After: 2}),
			request: "POST /v1/chat/completions", body: chat},
	}
}
