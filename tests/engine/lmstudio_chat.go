// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"strconv"

	"github.com/tidwall/gjson"
)

// chatKeys are the keys that /api/v1/chat knows; any other one is an error.
var chatKeys = []string{"model", "input", "system_prompt", "integrations", "stream", "temperature", "top_p", "top_k",
	"min_p", "repeat_penalty", "max_output_tokens", "reasoning", "context_length", "store", "previous_response_id"}

// chat answers LM Studio's own route.
func (l *lmstudio) chat(x *exchange) {
	if !l.request(x) {
		return
	}
	unknown := ""
	x.p.all.ForEach(func(key, _ gjson.Result) bool {
		if !slices.Contains(chatKeys, key.Str) {
			unknown = key.Str
		}
		return unknown == ""
	})
	if unknown != "" {
		x.fail(failure{status: 400, kind: "invalid_request", code: "unrecognized_keys", param: unknown,
			message: "Unrecognized key(s) in object: '" + unknown + "'"})
		return
	}
	m, ok := l.model(x)
	if !ok {
		return
	}
	_, ready := l.e.models.isLoaded(m.Name)
	f := lmChat{loads: !ready}
	if !x.p.streams(false) || ready {
		x.infer(f, demand{model: m}, m.Name, x.p.streams(false))
		return
	}
	l.chatWithLoad(x, f, m)
}

// chatWithLoad streams the load, too: its events come before the model is there.
func (l *lmstudio) chatWithLoad(x *exchange, f lmChat, m Model) {
	x.prepare(m.Name)
	x.startStream(typeSSE, true)
	f.event(x, "chat.start", `,"model_instance_id":`+quoted(m.Name))
	f.event(x, "model_load.start", `,"model_instance_id":`+quoted(m.Name))
	f.event(x, "model_load.progress", `,"model_instance_id":`+quoted(m.Name)+`,"progress":0.5`)
	in, err := l.e.models.use(x, demand{model: m})
	if err != nil {
		if x.err == nil {
			f.failed(x)
			x.endStream()
		}
		return
	}
	defer l.e.models.done(in, true)
	if err := l.e.slots.enter(x, m.Name); err != nil {
		if x.err == nil {
			f.failed(x)
			x.endStream()
		}
		return
	}
	defer l.e.slots.leave(x, m.Name)
	x.generate(f, true)
}

// lmChat is the form of /api/v1/chat. The events of a load come first where
// there is one.
type lmChat struct{ loads bool }

func (lmChat) contentType() string { return typeSSE }

func (lmChat) event(x *exchange, kind, members string) {
	x.add("event: ", kind, "\n", `data: {"type":"`, kind, `"`, members, "}\n\n")
	x.emit()
}

func (f lmChat) open(x *exchange) {
	if f.loads {
		f.event(x, "model_load.end", `,"model_instance_id":`+quoted(x.g.model)+`,"load_time_seconds":1.25`)
	} else {
		f.event(x, "chat.start", `,"model_instance_id":`+quoted(x.g.model))
	}
	f.event(x, "prompt_processing.start", "")
	f.event(x, "prompt_processing.end", "")
	f.event(x, "message.start", "")
}

func (lmChat) delta(x *exchange, token int) {
	x.add("event: message.delta\n", `data: {"type":"message.delta","content":"`)
	x.buf = x.g.appendToken(x.buf, token)
	x.add("\"}\n\n")
}

func (f lmChat) finish(x *exchange) { f.event(x, "message.end", "") }

func (f lmChat) terminate(x *exchange) { f.event(x, "chat.end", `,"result":`+f.result(x)) }

func (f lmChat) result(x *exchange) string {
	load := ""
	if f.loads {
		load = `,"model_load_time_seconds":1.25`
	}
	return `{"model_instance_id":` + quoted(x.g.model) + `,"output":[{"type":"message","content":"` + x.text() +
		`"}],"stats":{"input_tokens":` + strconv.Itoa(x.g.prompt) + `,"total_output_tokens":` + strconv.Itoa(x.g.n) +
		`,"reasoning_output_tokens":0,"tokens_per_second":50.0,"time_to_first_token_seconds":0.2` + load +
		`},"response_id":"resp_` + string(x.g.seed.appendHex(nil, 16)) + `"}`
}

func (f lmChat) whole(x *exchange) {
	x.add(f.result(x))
	x.respond(200, typeJSONUTF8, indent(x.buf))
}

func (f lmChat) failed(x *exchange) {
	f.event(x, "error", `,"error":{"type":"internal_error","message":`+x.problem()+"}")
}
