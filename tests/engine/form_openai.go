// SPDX-License-Identifier: Apache-2.0

package engine

import "strconv"

// created is the Unix time in OpenAI's bodies.
func (x *exchange) created() string { return strconv.FormatInt(x.e.now().Unix(), 10) }

// openAIChat is the form of /v1/chat/completions, as each engine writes it.
type openAIChat struct{}

func (openAIChat) contentType() string { return typeSSE }

// llama reports whether the engine is llama.cpp, whose members stand in another
// order and whose first chunk holds two events.
func (x *exchange) llama() bool {
	return x.e.cfg.Dialect == LlamaCpp || x.e.cfg.Dialect == LlamaCppRouter
}

// fingerprint returns the member that names the build, with a comma.
func (x *exchange) fingerprint() string {
	switch x.e.cfg.Dialect {
	case Ollama:
		return `"system_fingerprint":"fp_ollama",`
	case LMStudio:
		return `"system_fingerprint":` + quoted(x.g.model) + `,`
	case VLLM:
		return ""
	}
	return `"system_fingerprint":"b0-demo",`
}

// makeID sets the answer's id: Ollama's are few and repeat.
func (x *exchange) makeID(prefix string) {
	b := append([]byte(nil), prefix...)
	if x.e.cfg.Dialect == Ollama {
		b = strconv.AppendUint(b, x.g.seed.number(1000), 10)
	} else {
		b = x.g.seed.appendHex(b, 16)
	}
	x.g.id = string(b)
}

func (f openAIChat) open(x *exchange) {
	x.makeID("chatcmpl-")
	f.around(x)
	switch {
	case x.e.cfg.Dialect == VLLM: // a chunk of its own, and an empty content
		f.event(x, `{"role":"assistant","content":""}`, "")
		x.emit()
	case x.llama():
		f.event(x, `{"role":"assistant","content":null}`, "")
	}
}

// around builds what stands before and after the delta of each event.
func (f openAIChat) around(x *exchange) {
	b := append(x.g.pre[:0], "data: {"...)
	s := x.g.suf[:0]
	if x.llama() {
		b = append(b, `"choices":[{"finish_reason":null,"index":0,"delta":`...)
		s = append(s, `}],"created":`...)
		s = append(s, x.created()...)
		s = append(s, `,"id":"`...)
		s = append(s, x.g.id...)
		s = append(s, `","model":`...)
		s = appendString(s, x.g.model)
		s = append(s, `,`...)
		s = append(s, x.fingerprint()...)
		s = append(s, `"object":"chat.completion.chunk"}`...)
	} else {
		b = append(b, `"id":"`...)
		b = append(b, x.g.id...)
		b = append(b, `","object":"chat.completion.chunk","created":`...)
		b = append(b, x.created()...)
		b = append(b, `,"model":`...)
		b = appendString(b, x.g.model)
		b = append(b, ',')
		b = append(b, x.fingerprint()...)
		b = append(b, `"choices":[{"index":0,"delta":`...)
		if x.e.cfg.Dialect != Ollama {
			s = append(s, `,"logprobs":null`...)
		}
		s = append(s, `,"finish_reason":null}]}`...)
	}
	x.g.pre, x.g.suf = b, append(s, "\n\n"...)
}

// event appends an event with a delta, whose finish reason is null if empty.
func (f openAIChat) event(x *exchange, delta, reason string) {
	start := len(x.buf)
	x.buf = append(x.buf, x.g.pre...)
	x.add(delta)
	x.buf = append(x.buf, x.g.suf...)
	if reason != "" {
		x.buf = append(x.buf[:start], replaceReason(x.buf[start:], reason)...)
	}
}

func (f openAIChat) delta(x *exchange, token int) {
	if x.g.tool != "" {
		f.event(x, f.call(x, `"index":0,`), "")
		return
	}
	x.buf = append(x.buf, x.g.pre...)
	if token == 0 && (x.e.cfg.Dialect == Ollama || x.e.cfg.Dialect == LMStudio) {
		x.add(`{"role":"assistant","content":"`)
	} else {
		x.add(`{"content":"`)
	}
	x.buf = x.g.appendToken(x.buf, token)
	x.add(`"}`)
	start := len(x.buf)
	x.buf = append(x.buf, x.g.suf...)
	if x.e.cfg.Dialect == VLLM && token == x.g.n-1 { // vLLM ends with the last token
		x.buf = append(x.buf[:start], replaceReason(x.buf[start:], x.reason())...)
	}
}

// call is a message or delta that calls the tool.
func (openAIChat) call(x *exchange, index string) string {
	return `{"role":"assistant","content":null,"tool_calls":[{` + index + `"id":"call_` + string(x.g.seed.appendHex(nil, 8)) +
		`","type":"function","function":{"name":` + quoted(x.g.tool) + `,"arguments":` + quoted(x.g.args) + `}}]}`
}

// reason returns the finish reason of the answer.
func (x *exchange) reason() string {
	switch {
	case x.g.tool != "":
		return `"tool_calls"`
	case x.g.cut:
		return `"length"`
	}
	return `"stop"`
}

func (f openAIChat) finish(x *exchange) {
	if x.e.cfg.Dialect == VLLM {
		if x.g.tool != "" {
			f.event(x, "{}", x.reason())
			x.emit()
		}
	} else {
		f.event(x, "{}", x.reason())
		if x.llama() && !x.g.usage {
			x.buf = append(x.buf[:len(x.buf)-3], x.timings()...)
			x.add("}\n\n")
		}
	}
	if x.g.usage {
		f.usage(x)
	}
	if x.e.cfg.Dialect != Ollama { // whose terminator shares the last chunk
		x.emit()
	}
}

// usage appends the event with the counts, which has no choice.
func (f openAIChat) usage(x *exchange) {
	m := quoted(x.g.model)
	if x.llama() {
		x.add(`data: {"choices":[],"created":`, x.created(), `,"id":"`, x.g.id, `","model":`, m, `,`, x.fingerprint(),
			`"object":"chat.completion.chunk","usage":`)
	} else {
		x.add(`data: {"id":"`, x.g.id, `","object":"chat.completion.chunk","created":`, x.created(), `,"model":`, m, `,`,
			x.fingerprint(), `"choices":[],"usage":`)
	}
	x.usageObject()
	if x.llama() {
		x.buf = append(x.buf, x.timings()...)
	}
	x.add("}\n\n")
}

func (openAIChat) terminate(x *exchange) { x.add("data: [DONE]\n\n") }

func (f openAIChat) whole(x *exchange) {
	x.makeID("chatcmpl-")
	m := quoted(x.g.model)
	message := func() {
		if x.g.tool != "" {
			x.add(f.call(x, ""))
			return
		}
		x.add(`{"role":"assistant","content":"`)
		x.buf = x.g.appendText(x.buf)
		x.add(`"}`)
	}
	if x.llama() {
		x.add(`{"choices":[{"finish_reason":`, x.reason(), `,"index":0,"message":`)
		message()
		x.add(`}],"created":`, x.created(), `,"model":`, m, `,`, x.fingerprint(), `"object":"chat.completion","usage":`)
		x.usageObject()
		x.add(`,"id":"`, x.g.id, `"`)
		x.buf = append(x.buf, x.timings()...)
	} else {
		x.add(`{"id":"`, x.g.id, `","object":"chat.completion","created":`, x.created(), `,"model":`, m, `,`,
			x.fingerprint(), `"choices":[{"index":0,"message":`)
		message()
		if x.e.cfg.Dialect != Ollama {
			x.add(`,"logprobs":null`)
		}
		x.add(`,"finish_reason":`, x.reason(), `}],"usage":`)
		x.usageObject()
		x.nativeStats()
	}
	x.add("}")
	x.respondOpenAI(200)
}

// empty appends the chunk with which Ollama ends a stream whose runner died.
func (f openAIChat) empty(x *exchange) {
	f.around(x)
	f.event(x, `{"content":""}`, "")
}

func (f openAIChat) failed(x *exchange) {
	switch x.e.cfg.Dialect {
	case Ollama:
		x.g.model = ""
		f.empty(x)
	default:
		x.failedSSE()
	}
}
