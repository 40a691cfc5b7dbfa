// SPDX-License-Identifier: Apache-2.0

package engine

import "strings"

// responses is the form of OpenAI's /v1/responses. llama.cpp counts no events
// and joins those before the first token and after the last into one chunk each.
type responses struct{}

func (responses) contentType() string { return typeSSE }

// item is the id of the one item of the answer.
func (x *exchange) item() string {
	if x.e.cfg.Dialect == Ollama {
		return "msg_" + x.g.id[len("resp_"):]
	}
	return "msg_" + string(x.g.seed.appendHex(nil, 16))
}

func (responses) makeID(x *exchange) {
	if x.e.cfg.Dialect == Ollama {
		b := []byte("resp_")
		n := 100000 + x.g.seed.number(900000)
		for div := uint64(100000); div > 0; div /= 10 {
			b = append(b, byte('0'+n/div%10))
		}
		x.g.id = string(b)
		return
	}
	x.g.id = string(x.g.seed.appendHex([]byte("resp_"), 16))
}

// event appends an event of a type; members is the rest of its object, which
// begins with a member.
func (f responses) event(x *exchange, kind, members string) {
	x.add("event: ", kind, "\ndata: {")
	if x.llama() {
		x.add(`"type":"`, kind, `",`, members, "}\n\n")
		return
	}
	x.add(members, `,"sequence_number":`)
	x.num(x.g.seq)
	x.add(`,"type":"`, kind, "\"}\n\n")
	x.g.seq++
	x.emit()
}

// text returns the whole answer as it stands inside a JSON string.
func (x *exchange) text() string { return string(x.g.appendText(nil)) }

func (f responses) part(x *exchange, text string) string {
	if x.llama() && text == "" {
		return `{"type":"output_text","text":""}`
	}
	if x.llama() {
		return `{"type":"output_text","annotations":[],"logprobs":[],"text":"` + text + `"}`
	}
	return `{"annotations":[],"logprobs":[],"text":"` + text + `","type":"output_text"}`
}

// output returns the item, empty or done.
func (f responses) output(x *exchange, done bool) string {
	status, content, args := "in_progress", "", ""
	if done {
		status = "completed"
	}
	if x.g.tool != "" {
		if done {
			args = x.g.args
		}
		return `{"arguments":` + quoted(args) + `,"call_id":"call_` + x.g.id[5:] + `","id":"fc_` + x.g.id[5:] +
			`","name":` + quoted(x.g.tool) + `,"status":"` + status + `","type":"function_call"}`
	}
	if done {
		content = f.part(x, x.text())
	}
	if x.llama() && done {
		return `{"type":"message","status":"completed","id":"` + x.item() + `","content":[` + content +
			`],"role":"assistant"}`
	}
	return `{"content":[` + content + `],"id":"` + x.item() + `","role":"assistant","status":"` + status +
		`","type":"message"}`
}

// object returns the response itself, at its begin or its end.
func (f responses) object(x *exchange, status string) string {
	done := status != "in_progress"
	if x.llama() && !done {
		return `{"id":"` + x.g.id + `","object":"response","status":"in_progress"}`
	}
	output, completed, usage := "", "null", "null"
	if done {
		output, completed, usage = f.output(x, true), x.created(), f.usage(x)
	}
	if x.llama() {
		return `{"id":"` + x.g.id + `","object":"response","created_at":` + x.created() + `,"status":"` + status +
			`","model":` + quoted(x.g.model) + `,"output":[` + output + `],"usage":` + usage + `}`
	}
	limit := "null"
	if n := x.p.all.Get("max_output_tokens"); n.Exists() {
		limit = n.Raw
	}
	previous := "null"
	if id := x.p.all.Get("previous_response_id"); id.Exists() {
		previous = id.Raw
	}
	return `{"background":false,"completed_at":` + completed + `,"created_at":` + x.created() +
		`,"error":null,"frequency_penalty":0,"id":"` + x.g.id + `","incomplete_details":null,"instructions":null,` +
		`"max_output_tokens":` + limit + `,"max_tool_calls":null,"metadata":{},"model":` + quoted(x.g.model) +
		`,"object":"response","output":[` + output + `],"parallel_tool_calls":true,"presence_penalty":0,` +
		`"previous_response_id":` + previous + `,"prompt_cache_key":null,"reasoning":null,"safety_identifier":null,` +
		`"service_tier":"default","status":"` + status + `","store":false,"temperature":1,` +
		`"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_logprobs":0,"top_p":1,` +
		`"truncation":"disabled","usage":` + usage + `}`
}

func (f responses) usage(x *exchange) string {
	var u exchange
	u.add(`{"input_tokens":`)
	u.num(x.g.prompt)
	if !x.llama() {
		u.add(`,"input_tokens_details":{"cached_tokens":0}`)
	}
	u.add(`,"output_tokens":`)
	u.num(x.g.n)
	if !x.llama() {
		u.add(`,"output_tokens_details":{"reasoning_tokens":0}`)
	}
	u.add(`,"total_tokens":`)
	u.num(x.g.prompt + x.g.n)
	if x.llama() {
		u.add(`,"input_tokens_details":{"cached_tokens":0}`)
	}
	return string(u.buf) + "}"
}

func (f responses) open(x *exchange) {
	f.makeID(x)
	index := f.place(x, `"output_index":0`)
	f.event(x, "response.created", `"response":`+f.object(x, "in_progress"))
	f.event(x, "response.in_progress", `"response":`+f.object(x, "in_progress"))
	f.event(x, "response.output_item.added", `"item":`+f.output(x, false)+index)
	if x.g.tool == "" {
		f.event(x, "response.content_part.added",
			f.place(x, `"content_index":0,`)+`"item_id":"`+x.item()+`"`+index+`,"part":`+f.part(x, ""))
	}
}

// place returns members that say where in the answer an event belongs, which
// llama.cpp leaves out.
func (responses) place(x *exchange, members string) string {
	switch {
	case x.llama():
		return ""
	case strings.HasSuffix(members, ","):
		return members
	}
	return "," + members
}

func (f responses) delta(x *exchange, token int) {
	index := f.place(x, `"output_index":0`)
	if x.g.tool != "" {
		f.event(x, "response.function_call_arguments.delta",
			`"delta":`+quoted(x.g.args)+`,"item_id":"fc_`+x.g.id[5:]+`"`+index)
		return
	}
	text := `"delta":"` + string(x.g.appendToken(nil, token)) + `",`
	if x.llama() {
		f.event(x, "response.output_text.delta", `"item_id":"`+x.item()+`",`+text[:len(text)-1])
		return
	}
	f.event(x, "response.output_text.delta",
		`"content_index":0,`+text+`"item_id":"`+x.item()+`","logprobs":[]`+index)
}

func (f responses) finish(x *exchange) {
	index := f.place(x, `"output_index":0`)
	if x.g.tool != "" {
		f.event(x, "response.function_call_arguments.done",
			`"arguments":`+quoted(x.g.args)+`,"item_id":"fc_`+x.g.id[5:]+`"`+index)
	} else {
		where := f.place(x, `"content_index":0,`) + `"item_id":"` + x.item() + `"`
		logprobs := ""
		if !x.llama() {
			logprobs = `,"logprobs":[]`
		}
		f.event(x, "response.output_text.done", where+logprobs+index+`,"text":"`+x.text()+`"`)
		f.event(x, "response.content_part.done", where+index+`,"part":`+f.part(x, x.text()))
	}
	f.event(x, "response.output_item.done", `"item":`+f.output(x, true)+index)
}

// terminate ends with completed even where the limit ended the text, as both
// recorded engines do.
func (f responses) terminate(x *exchange) {
	f.event(x, "response.completed", `"response":`+f.object(x, "completed"))
}

func (f responses) whole(x *exchange) {
	f.makeID(x)
	x.add(f.object(x, "completed"))
	x.respondOpenAI(200)
}

func (f responses) failed(x *exchange) {
	switch x.e.cfg.Dialect {
	case Ollama: // says nothing at all
	case LlamaCpp, LlamaCppRouter:
		x.add(`data: {"error":{"code":500,"message":`, x.problem(), `,"type":"server_error"}}`, "\n\n")
	default:
		f.event(x, "error", `"code":"server_error","message":`+x.problem()+`,"param":null`)
	}
}
