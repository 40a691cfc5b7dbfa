// SPDX-License-Identifier: Apache-2.0

package engine

import "strconv"

// models lists the model twice over, as Ollama's and as OpenAI's clients expect
// it; the router lists as OpenAI alone.
func (l *llama) models(x *exchange) {
	list := x.models()
	x.add("{")
	if l.router {
		x.rows("data", len(list), func(i int) { l.routerRow(x, list[i]) })
		x.add(`,"object":"list"}`)
		x.respond(200, typeJSONUTF8, x.buf)
		return
	}
	x.rows("models", len(list), func(i int) {
		name := quoted(list[i].Name)
		x.add(`{"name":`, name, `,"model":`, name, `,"modified_at":"","size":"","digest":"","type":"model",`,
			`"description":"","tags":[""],"capabilities":["completion"],"parameters":"","details":{"parent_model":"",`,
			`"format":"gguf","family":"","families":[""],"parameter_size":"","quantization_level":""}}`)
	})
	x.add(`,"object":"list",`)
	x.rows("data", len(list), func(i int) {
		name := quoted(list[i].Name)
		x.add(`{"id":`, name, `,"aliases":[`, name, `],"tags":[],"object":"model","created":`, x.created(),
			`,"owned_by":"llamacpp","meta":{"vocab_type":1,"n_vocab":321,"n_ctx_train":`)
		x.num(list[i].Context)
		x.add(`,"n_embd":32,"n_params":0,"size":`, strconv.FormatInt(list[i].Size, 10), `}}`)
	})
	x.add("}")
	x.respond(200, typeJSONUTF8, x.buf)
}

func (l *llama) routerRow(x *exchange, m Model) {
	state, port := "unloaded", "0"
	if has, ready := l.e.models.isLoaded(m.Name); ready {
		state, port = "loaded", "40447"
	} else if has {
		state, port = "loading", "40447"
	}
	path := "/nowhere/" + m.Name + ".gguf"
	x.add(`{"id":`, quoted(m.Name), `,"aliases":[],"tags":[],"object":"model","owned_by":"llamacpp","created":`, x.created(),
		`,"status":{"value":"`, state, `","args":["nvpair-demo-engine","--host","127.0.0.1","--port","`, port, `","--alias",`,
		quoted(m.Name), `,"--model",`, quoted(path), `],"preset":`,
		quoted("["+m.Name+"]\nmodel = "+path+"\n\n"), `}}`)
}

// load answers at once, while the model is still loading.
func (l *llama) load(x *exchange) {
	if !l.request(x) {
		return
	}
	m, ok := l.e.models.find(x.p.model)
	if !ok {
		l.notFound(x)
		return
	}
	if has, _ := l.e.models.isLoaded(m.Name); has {
		x.fail(failure{status: 400, message: "model is already running"})
		return
	}
	in, err := l.e.models.use(x, demand{model: m, nowait: true})
	if err != nil {
		x.refuse(err)
		return
	}
	l.e.models.done(in, true)
	x.respond(200, typeJSONUTF8, []byte(`{"success":true}`))
}

func (l *llama) unload(x *exchange) {
	if !l.request(x) {
		return
	}
	if _, ok := l.e.models.find(x.p.model); !ok {
		l.notFound(x)
		return
	}
	if !l.e.models.unload(x.p.model, true) {
		x.fail(failure{status: 400, message: "model is not running"})
		return
	}
	x.respond(200, typeJSONUTF8, []byte(`{"success":true}`))
}

// slotCount is how many slots /slots and /props tell of: auto is 4.
func (l *llama) slotCount() int {
	if l.e.cfg.Slots > 0 {
		return l.e.cfg.Slots
	}
	return 4
}

func (l *llama) props(x *exchange) {
	if l.router {
		x.add(`{"role":"router","max_instances":`)
		x.num(l.e.cfg.MaxLoaded)
		x.add(`,"models_autoload":`, strconv.FormatBool(!l.e.cfg.JITOff), `,"model_alias":"nvpair-demo-engine",`,
			`"model_path":"none","default_generation_settings":{"params":null,"n_ctx":0},"webui_settings":{},`,
			`"build_info":"b0-demo"}`)
		x.respond(200, typeJSONUTF8, x.buf)
		return
	}
	m, _ := l.model(x)
	x.add(`{"default_generation_settings":{"params":{"temperature":0.8},"n_ctx":`)
	x.num(m.Context)
	x.add(`},"total_slots":`)
	x.num(l.slotCount())
	x.add(`,"model_alias":`, quoted(m.Name), `,"model_path":`, quoted("/nowhere/"+m.Name),
		`,"modalities":{"vision":false,"audio":false},"endpoint_slots":true,"endpoint_props":false,"endpoint_metrics":`,
		strconv.FormatBool(l.e.cfg.Embeddings), `,"webui":false,"webui_settings":{},"chat_template":"...","bos_token":"<s>",`,
		`"eos_token":"</s>","build_info":"b0-demo","is_sleeping":false}`)
	x.respond(200, typeJSONUTF8, x.buf)
}

func (l *llama) slots(x *exchange) {
	m, _ := l.model(x)
	if x.stream.started {
		return // the router wants a model here, and said so
	}
	busy := int(l.e.slots.running.Load())
	x.add("[")
	for i := range l.slotCount() {
		if i > 0 {
			x.add(",")
		}
		x.add(`{"id":`)
		x.num(i)
		x.add(`,"n_ctx":`)
		x.num(m.Context)
		x.add(`,"speculative":false,"is_processing":`, strconv.FormatBool(i < busy))
		if i < busy {
			x.add(`,"id_task":`)
			x.num(i)
			x.add(`,"params":{"seed":4294967295,"temperature":0.8,"max_tokens":60,"stream":true},`,
				`"next_token":[{"has_next_token":true,"has_new_line":false,"n_remain":1,"n_decoded":1}]`)
		}
		x.add("}")
	}
	x.add("]")
	x.respond(200, typeJSONUTF8, x.buf)
}

func (l *llama) metrics(x *exchange) {
	if !l.e.cfg.Embeddings {
		x.fail(failure{status: 501, message: "This server does not support metrics endpoint. Start it with `--metrics`"})
		return
	}
	gauge := func(name, help string, n int64) {
		x.add("# HELP llamacpp:", name, " ", help, "\n# TYPE llamacpp:", name, " gauge\nllamacpp:", name, " ",
			strconv.FormatInt(n, 10), "\n")
	}
	gauge("requests_processing", "Number of requests processing.", l.e.slots.running.Load())
	gauge("requests_deferred", "Number of requests deferred.", l.e.slots.waiting.Load())
	x.set("Process-Start-Time-Unix", x.created())
	x.respond(200, "text/plain; version=0.0.4", x.buf)
}

// llamaNative is the form of /completion: its last event says "stop":true, and
// there is no [DONE].
type llamaNative struct{}

func (llamaNative) contentType() string { return typeSSE }
func (llamaNative) open(*exchange)      {}
func (llamaNative) finish(*exchange)    {}

func (llamaNative) delta(x *exchange, token int) {
	x.add(`data: {"index":0,"content":"`)
	x.buf = x.g.appendToken(x.buf, token)
	x.add(`","tokens":[`)
	x.num(256 + token)
	x.add(`],"stop":false,"id_slot":-1,"tokens_predicted":`)
	x.num(token + 1)
	x.add(`,"tokens_evaluated":`)
	x.num(x.g.prompt)
	x.add("}\n\n")
}

// last appends the object that ends a stream, and is the whole answer without one.
func (llamaNative) last(x *exchange, content string) {
	stop := "eos"
	if x.g.cut {
		stop = "limit"
	}
	x.add(`{"index":0,"content":"`, content, `","tokens":[],"id_slot":1,"stop":true,"model":`, quoted(x.g.model),
		`,"tokens_predicted":`)
	x.num(x.g.n)
	x.add(`,"tokens_evaluated":`)
	x.num(x.g.prompt)
	x.add(`,"generation_settings":{},"prompt":`, quoted("<s> "+x.p.prompt.String()),
		`,"has_new_line":false,"truncated":false,"stop_type":"`, stop, `","stopping_word":"","tokens_cached":`)
	x.num(x.g.prompt + x.g.n)
	x.add(x.timings(), "}")
}

func (f llamaNative) terminate(x *exchange) {
	x.add("data: ")
	f.last(x, "")
	x.add("\n\n")
}

func (f llamaNative) whole(x *exchange) {
	f.last(x, x.text())
	x.respond(200, typeJSONUTF8, x.buf)
}

func (llamaNative) failed(x *exchange) { x.failedSSE() }
