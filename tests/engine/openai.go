// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"strings"
)

// replaceReason puts a finish reason in the place of null.
func replaceReason(event []byte, reason string) []byte {
	return bytes.Replace(event, []byte(`"finish_reason":null`), []byte(`"finish_reason":`+reason), 1)
}

// usageObject appends the counts of an OpenAI answer.
func (x *exchange) usageObject() {
	if x.llama() {
		x.add(`{"completion_tokens":`)
		x.num(x.g.n)
		x.add(`,"prompt_tokens":`)
		x.num(x.g.prompt)
	} else {
		x.add(`{"prompt_tokens":`)
		x.num(x.g.prompt)
		x.add(`,"completion_tokens":`)
		x.num(x.g.n)
	}
	x.add(`,"total_tokens":`)
	x.num(x.g.prompt + x.g.n)
	if x.llama() {
		x.add(`,"prompt_tokens_details":{"cached_tokens":0}`)
	}
	x.add("}")
}

// timings returns the member that llama.cpp adds, with a comma; all made up.
func (x *exchange) timings() string {
	var t exchange
	t.add(`,"timings":{"cache_n":0,"prompt_n":`)
	t.num(x.g.prompt)
	t.add(`,"prompt_ms":0.5,"prompt_per_token_ms":0.25,"prompt_per_second":4000.5,"predicted_n":`)
	t.num(x.g.n)
	t.add(`,"predicted_ms":0.5,"predicted_per_token_ms":0.25,"predicted_per_second":4000.5}`)
	return string(t.buf)
}

// nativeStats appends what LM Studio's own route adds to OpenAI's answer.
func (x *exchange) nativeStats() {
	if x.e.cfg.Dialect != LMStudio || !strings.HasPrefix(x.path, "/api/v0/") {
		return
	}
	x.add(`,"stats":{"tokens_per_second":50.5,"time_to_first_token":0.2,"generation_time":0.5,"stop_reason":"eosFound"},`,
		`"model_info":{"arch":"demo","quant":"Q4_K_M","format":"gguf","context_length":4096},`,
		`"runtime":{"name":"nvpair-demo-engine","version":"0.0.0","supported_formats":["gguf"]}`)
}

// respondOpenAI answers with the JSON in x.buf, as the engine ends it.
func (x *exchange) respondOpenAI(status int) {
	switch x.e.cfg.Dialect {
	case Ollama:
		x.add("\n")
		x.respond(status, typeJSON, x.buf)
	case LMStudio:
		x.respond(status, typeJSONUTF8, indent(x.buf))
	case VLLM:
		x.respond(status, typeJSON, x.buf)
	default:
		x.respond(status, typeJSONUTF8, x.buf)
	}
}

// failedSSE appends the error event that ends a stream of OpenAI's dialect.
func (x *exchange) failedSSE() {
	switch x.e.cfg.Dialect {
	case LMStudio:
		x.add("event: error\n", `data: {"error":{"message":`, x.problem(), "}}\n\n")
	case VLLM:
		x.add(`data: {"error":{"message":"Internal server error","type":"InternalServerError","param":null,"code":500}}`,
			"\n\n")
		x.emit()
		x.add("data: [DONE]\n\n")
	default:
		x.add(`data: {"error":{"code":500,"message":`, x.problem(), `,"type":"server_error"}}`, "\n\n")
	}
}

// openAICompletions is the form of /v1/completions.
type openAICompletions struct{}

func (openAICompletions) contentType() string { return typeSSE }

func (f openAICompletions) open(x *exchange) {
	x.makeID("cmpl-")
	x.g.suf = f.tail(x.g.suf, x)
}

// tail appends what follows the choices of an event.
func (openAICompletions) tail(b []byte, x *exchange) []byte {
	switch {
	case x.llama():
		b = append(b, `,"created":`+x.created()+`,"model":`...)
		b = appendString(b, x.g.model)
		b = append(b, `,`+x.fingerprint()+`"object":"text_completion"`...)
	default:
		b = append(b, `,"model":`...)
		b = appendString(b, x.g.model)
		if f := x.fingerprint(); f != "" {
			b = append(b, ',')
			b = append(b, f[:len(f)-1]...)
		}
	}
	return b
}

// event appends an event: a token, or the finish reason behind the last one.
func (f openAICompletions) event(x *exchange, token int, reason string) {
	if x.llama() {
		x.add(`data: {"choices":[{"text":"`)
	} else {
		x.add(`data: {"id":"`, x.g.id, `","object":"text_completion","created":`, x.created(), `,"choices":[{"text":"`)
	}
	if token >= 0 {
		x.buf = x.g.appendToken(x.buf, token)
	}
	x.add(`","index":0`)
	if x.e.cfg.Dialect != Ollama {
		x.add(`,"logprobs":null`)
	}
	x.add(`,"finish_reason":`, reason, `}]`)
	x.buf = append(x.buf, x.g.suf...)
	last := token < 0
	if last && x.llama() || last && x.g.usage {
		x.add(`,"usage":`)
		x.usageObject()
	}
	if x.llama() {
		x.add(`,"id":"`, x.g.id, `"`)
	}
	if last && x.llama() {
		x.add(x.timings())
	}
	x.add("}\n\n")
}

func (f openAICompletions) delta(x *exchange, token int) { f.event(x, token, "null") }

func (f openAICompletions) finish(x *exchange) {
	f.event(x, -1, x.reason())
	if x.e.cfg.Dialect != Ollama {
		x.emit()
	}
}

func (openAICompletions) terminate(x *exchange) { x.add("data: [DONE]\n\n") }

func (f openAICompletions) whole(x *exchange) {
	x.makeID("cmpl-")
	x.add(`{"id":"`, x.g.id, `","object":"text_completion","created":`, x.created(), `,"model":`, quoted(x.g.model), `,`,
		x.fingerprint(), `"choices":[{"text":"`)
	x.buf = x.g.appendText(x.buf)
	x.add(`","index":0,"logprobs":null,"finish_reason":`, x.reason(), `}],"usage":`)
	x.usageObject()
	x.add("}")
	x.respondOpenAI(200)
}

func (f openAICompletions) failed(x *exchange) {
	if x.e.cfg.Dialect == Ollama {
		x.g.model = ""
		x.g.suf = f.tail(x.g.suf[:0], x)
		f.event(x, 0, "null")
		return
	}
	x.failedSSE()
}
