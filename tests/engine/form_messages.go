// SPDX-License-Identifier: Apache-2.0

package engine

// messages is the form of Anthropic's /v1/messages. llama.cpp joins the events
// before the first token, and those after the last, into one chunk each.
type messages struct{}

func (messages) contentType() string { return typeSSE }

// next ends an event as the engine does: a chunk, or not yet.
func (messages) next(x *exchange) {
	x.add("\n\n")
	if !x.llama() {
		x.emit()
	}
}

func (f messages) open(x *exchange) {
	f.makeID(x)
	x.add("event: message_start\ndata: ", `{"type":"message_start","message":{"id":"`, x.g.id,
		`","type":"message","role":"assistant",`)
	if x.llama() {
		x.add(`"content":[],"model":`, quoted(x.g.model), `,"stop_reason":null,"stop_sequence":null,`,
			`"usage":{"cache_read_input_tokens":0,"input_tokens":`)
	} else {
		x.add(`"model":`, quoted(x.g.model), `,"content":[],"usage":{"input_tokens":`)
	}
	x.num(x.g.prompt)
	x.add(`,"output_tokens":0}}}`)
	f.next(x)
	x.add("event: content_block_start\ndata: ", `{"type":"content_block_start","index":0,"content_block":`)
	if x.g.tool != "" {
		x.add(`{"type":"tool_use","id":"`, f.toolID(x), `","name":`, quoted(x.g.tool), `,"input":{}}}`)
	} else {
		x.add(`{"type":"text","text":""}}`)
	}
	f.next(x)
}

func (messages) makeID(x *exchange) {
	prefix := "msg_"
	if x.llama() {
		prefix = "chatcmpl-"
	}
	x.g.id = string(x.g.seed.appendHex([]byte(prefix), 16))
}

func (messages) toolID(x *exchange) string { return string(x.g.seed.appendHex([]byte("toolu_"), 12)) }

func (messages) delta(x *exchange, token int) {
	x.add("event: content_block_delta\ndata: ", `{"type":"content_block_delta","index":0,"delta":`)
	if x.g.tool != "" {
		x.add(`{"type":"input_json_delta","partial_json":`, quoted(x.g.args), "}}\n\n")
		return
	}
	x.add(`{"type":"text_delta","text":"`)
	x.buf = x.g.appendToken(x.buf, token)
	x.add("\"}}\n\n")
}

// stopReason returns why the answer ended.
func (messages) stopReason(x *exchange) string {
	switch {
	case x.g.tool != "":
		return `"tool_use"`
	case x.g.cut:
		return `"max_tokens"`
	}
	return `"end_turn"`
}

func (f messages) finish(x *exchange) {
	x.add("event: content_block_stop\ndata: ", `{"type":"content_block_stop","index":0}`)
	f.next(x)
	x.add("event: message_delta\ndata: ", `{"type":"message_delta","delta":{"stop_reason":`, f.stopReason(x))
	if x.llama() {
		x.add(`,"stop_sequence":null},"usage":{"output_tokens":`)
	} else {
		x.add(`},"usage":{"input_tokens":`)
		x.num(x.g.prompt)
		x.add(`,"output_tokens":`)
	}
	x.num(x.g.n)
	x.add("}}")
	f.next(x)
}

func (messages) terminate(x *exchange) {
	x.add("event: message_stop\ndata: ", `{"type":"message_stop"}`, "\n\n")
}

func (f messages) whole(x *exchange) {
	f.makeID(x)
	x.add(`{"id":"`, x.g.id, `","type":"message","role":"assistant",`)
	if !x.llama() {
		x.add(`"model":`, quoted(x.g.model), `,`)
	}
	if x.g.tool != "" {
		x.add(`"content":[{"type":"tool_use","id":"`, f.toolID(x), `","name":`, quoted(x.g.tool), `,"input":`, x.g.args, `}],`)
	} else {
		x.add(`"content":[{"type":"text","text":"`)
		x.buf = x.g.appendText(x.buf)
		x.add(`"}],`)
	}
	if x.llama() {
		x.add(`"model":`, quoted(x.g.model), `,"stop_reason":`, f.stopReason(x),
			`,"stop_sequence":null,"usage":{"cache_read_input_tokens":0,"input_tokens":`)
	} else {
		x.add(`"stop_reason":`, f.stopReason(x), `,"usage":{"input_tokens":`)
	}
	x.num(x.g.prompt)
	x.add(`,"output_tokens":`)
	x.num(x.g.n)
	x.add("}}")
	x.respondOpenAI(200)
}

func (messages) failed(x *exchange) {
	switch x.e.cfg.Dialect {
	case Ollama: // says nothing at all
	case LlamaCpp, LlamaCppRouter:
		x.add("event: error\ndata: ", `{"code":500,"message":`, x.problem(), `,"type":"server_error"}`, "\n\n")
	default:
		x.add("event: error\ndata: ",
			`{"type":"error","error":{"type":"api_error","message":`, x.problem(), "}}\n\n")
	}
}
