// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"strings"
)

func (o *ollama) chat(x *exchange) {
	if !o.request(x) {
		return
	}
	if x.p.model == "" {
		x.fail(failure{status: 400, message: "model is required"})
		return
	}
	o.run(x, ollamaNative{}, len(x.p.messages.Array()) == 0)
}

func (o *ollama) generate(x *exchange) {
	if o.request(x) {
		o.run(x, ollamaNative{generate: true}, x.p.prompt.String() == "")
	}
}

// run answers the native routes. A request without a text only loads or unloads.
func (o *ollama) run(x *exchange, f ollamaNative, empty bool) {
	m, ok := o.model(x, x.p.model, "model '%s' not found")
	if !ok {
		return
	}
	if m.Type == "embedding" && !empty {
		x.fail(failure{status: 400, message: fmt.Sprintf("%q does not support chat", x.p.model)})
		return
	}
	if empty {
		o.loadOnly(x, f, m)
		return
	}
	if n := x.p.promptTokens(); n > m.Context && !x.p.truncate {
		o.overflow(x, n, m.Context)
		return
	}
	x.infer(f, demand{model: m, context: x.p.numCtx}, x.p.model, x.p.streams(true))
}

// overflow answers a prompt that is over the context, as the runner words it.
func (o *ollama) overflow(x *exchange, n, context int) {
	inner := fmt.Sprintf(`{"error":{"code":400,"message":"request (%d tokens) exceeds the available context size `+
		`(%d tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":%d,"n_ctx":%d}}`,
		n, context, n, context)
	x.stream.status = 400
	x.startStream(typeJSON, false)
	x.add(`{"error":`, quoted(inner), "}")
	x.emit()
	x.endStream()
}

// loadOnly loads the model of a request without a text, or unloads it.
func (o *ollama) loadOnly(x *exchange, f ollamaNative, m Model) {
	x.prepare(x.p.model)
	keep, said := x.p.keep()
	reason := "load"
	if said && keep == 0 {
		reason = "unload"
		o.e.models.unload(m.Name, false)
	} else {
		in, err := o.e.models.use(x, demand{model: m, context: x.p.numCtx})
		if err != nil {
			x.refuse(err)
			return
		}
		if said {
			o.e.models.keepFor(in, keep)
		}
		o.e.models.done(in, false)
	}
	x.buf = f.head(x.buf[:0], x)
	if f.generate {
		x.add(`"`)
	} else {
		x.add(`"}`)
	}
	x.add(`,"done":true,"done_reason":"`, reason, `"}`)
	x.respond(200, typeJSONUTF8, x.buf)
}

// v1 answers OpenAI's and Anthropic's routes in a form.
func (o *ollama) v1(f form) handler {
	chat := f == form(openAIChat{})
	return func(x *exchange) {
		if !o.request(x) {
			return
		}
		if (chat || x.anthropic()) && len(x.p.messages.Array()) == 0 {
			x.fail(failure{status: 400, kind: "early", message: "[] is too short - 'messages'"})
			return
		}
		m, ok := o.model(x, x.p.model, "model '%s' not found")
		if !ok {
			return
		}
		if x.p.streams(false) {
			o.eventHeaders(x)
		}
		x.infer(f, demand{model: m}, x.p.model, x.p.streams(false))
	}
}

func (o *ollama) v1Models(x *exchange) {
	list := x.models()
	x.add(`{"object":"list",`)
	if len(list) == 0 && x.plan.find(KindList) == nil {
		x.add(`"data":null}`, "\n") // Ollama's own
		x.respond(200, typeJSON, x.buf)
		return
	}
	x.rows("data", len(list), func(i int) { o.v1Row(x, list[i].Name) })
	x.add("}\n")
	x.respond(200, typeJSON, x.buf)
}

func (o *ollama) v1Row(x *exchange, name string) {
	x.add(`{"id":`, quoted(name), `,"object":"model","created":`, x.created(), `,"owned_by":"library"}`)
}

func (o *ollama) v1Model(x *exchange) {
	name := strings.TrimPrefix(x.path, "/v1/models/")
	if _, ok := o.e.models.find(canonical(name)); !ok {
		x.fail(failure{status: 404, message: fmt.Sprintf("model '%s' not found", canonical(name))})
		return
	}
	o.v1Row(x, name)
	x.add("\n")
	x.respond(200, typeJSON, x.buf)
}

// embedder looks up the model of a request for embeddings; status is the answer
// to one that makes none.
func (o *ollama) embedder(x *exchange, status int) bool {
	if !o.request(x) {
		return false
	}
	m, ok := o.model(x, x.p.model, "model '%s' not found")
	if !ok {
		return false
	}
	if m.Type != "embedding" {
		x.fail(failure{status: status,
			message: "This server does not support embeddings. Start it with `--embeddings`"})
		return false
	}
	x.prepare(x.p.model)
	in, err := o.e.models.use(x, demand{model: m})
	if err != nil {
		x.refuse(err)
		return false
	}
	o.e.models.done(in, false)
	return true
}

func (o *ollama) embed(x *exchange) {
	if !o.embedder(x, 501) {
		return
	}
	x.add(`{"model":`, quoted(x.p.model), `,"embeddings":[`)
	for i, text := range x.inputs() {
		if i > 0 {
			x.add(",")
		}
		x.vector(text)
	}
	x.add(`],"total_duration":14143917,"load_duration":1019500,"prompt_eval_count":`)
	x.num(x.g.prompt)
	x.add("}")
	x.respond(200, typeJSONUTF8, x.buf)
}

func (o *ollama) embeddings(x *exchange) {
	if !o.embedder(x, 500) {
		return
	}
	x.add(`{"embedding":`)
	x.vector(x.p.prompt.String())
	x.add("}")
	x.respond(200, typeJSONUTF8, x.buf)
}

func (o *ollama) v1Embeddings(x *exchange) {
	if o.embedder(x, 501) {
		x.embedOpenAI(x.p.model)
	}
}
