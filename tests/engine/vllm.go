// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"strconv"
	"strings"
)

// vllm speaks as vLLM's server does, FastAPI behind uvicorn: header names are in
// lower case.
type vllm struct {
	e      *Engine
	routes routes
	dates  dates
}

func newVLLM(e *Engine) *vllm {
	v := &vllm{e: e}
	get := func(h handler) map[string]handler { return map[string]handler{"GET": h} }
	post := func(h handler) map[string]handler { return map[string]handler{"POST": h} }
	v.routes = routes{
		"/health":              get(v.health),
		"/ping":                {"GET": v.health, "POST": v.health},
		"/version":             get(func(x *exchange) { x.json(`{"version":` + quoted(e.cfg.Version) + `}`) }),
		"/load":                get(func(x *exchange) { x.json(`{"server_load":` + strconv.FormatInt(e.slots.running.Load(), 10) + `}`) }),
		"/metrics":             get(v.metrics),
		"/is_sleeping":         get(func(x *exchange) { x.json(`{"is_sleeping":false}`) }),
		"/v1/models":           get(v.models),
		"/v1/chat/completions": post(v.infer(openAIChat{})),
		"/v1/completions":      post(v.infer(openAICompletions{})),
		"/v1/responses":        post(v.infer(responses{})),
		"/v1/messages":         post(v.infer(messages{})),
		"/v1/embeddings":       post(v.embeddings),
		"/tokenize":            post(v.tokenize),
	}
	return v
}

// headersEarly: a stream's head goes out at once, whatever comes of it.
func (v *vllm) headersEarly() bool { return true }

func (v *vllm) head(b []byte, x *exchange, _ int, contentType string, length int) []byte {
	b = append(b, "date: "...)
	b = append(b, v.dates.text()...)
	b = append(b, "\r\nserver: uvicorn\r\n"...)
	b = append(b, x.extra...)
	if contentType == typeSSE {
		contentType = typeSSEUTF8
	}
	if contentType != "" {
		b = append(b, "content-type: "...)
		b = append(b, contentType...)
		b = append(b, "\r\n"...)
	}
	b = appendLength(b, length, "content-length", "transfer-encoding")
	if x.header("Origin") != "" {
		b = append(b, "access-control-allow-origin: *\r\n"...)
	}
	if x.close || x.plan.find(KindBothHeaders) != nil {
		b = append(b, "connection: close\r\n"...)
	}
	return b
}

// json answers with a JSON text.
func (x *exchange) json(text string) { x.respond(200, typeJSON, []byte(text)) }

func (v *vllm) serve(x *exchange) {
	if x.method == "OPTIONS" && x.header("Origin") != "" {
		x.set("access-control-allow-methods", "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT")
		x.set("access-control-max-age", "600")
		x.respond(200, typeTextUTF8, []byte("OK"))
		return
	}
	if key := v.e.cfg.APIKey; key != "" && strings.HasPrefix(x.path, "/v1/") &&
		x.header("Authorization") != "Bearer "+key {
		x.skipBody()
		x.respond(401, typeJSON, []byte(`{"error":"Unauthorized"}`))
		return
	}
	methods := v.routes.find(x.path)
	h := methods[x.method]
	switch {
	case methods == nil:
		x.skipBody()
		x.respond(404, typeJSON, []byte(`{"detail":"Not Found"}`))
	case h == nil:
		x.skipBody()
		x.set("allow", allow(methods))
		x.respond(405, typeJSON, []byte(`{"detail":"Method Not Allowed"}`))
	default:
		h(x)
	}
}

func (v *vllm) fail(x *exchange, f failure) {
	kind := f.kind
	if kind == "" {
		kind = map[int]string{400: "BadRequestError", 404: "NotFoundError", 429: "TooManyRequestsError",
			501: "NotImplementedError", 503: "ServiceUnavailableError"}[f.status]
	}
	param := "null"
	if f.param != "" {
		param = quoted(f.param)
	}
	x.add(`{"error":{"message":`, quoted(f.message), `,"type":"`, orText(kind, "InternalServerError"), `","param":`, param,
		`,"code":`)
	x.num(f.status)
	x.add("}}")
	x.respond(f.status, typeJSON, x.buf)
}

func (v *vllm) health(x *exchange) {
	x.skipBody()
	if x.plan.find(KindDead) != nil {
		x.empty(503)
		return
	}
	x.empty(200)
}

func (v *vllm) metrics(x *exchange) {
	x.add("# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running ")
	x.num(int(v.e.slots.running.Load()))
	x.add("\n# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting ")
	x.num(int(v.e.slots.waiting.Load()))
	x.add("\n")
	x.respond(200, "text/plain; version=0.0.4; charset=utf-8", x.buf)
}

func (v *vllm) models(x *exchange) {
	list := x.models()
	x.add(`{"object":"list",`)
	x.rows("data", len(list), func(i int) {
		name := quoted(list[i].Name)
		x.add(`{"id":`, name, `,"object":"model","created":`, x.created(), `,"owned_by":"vllm","root":`, name,
			`,"parent":null,"max_model_len":`)
		x.num(list[i].Context)
		x.add(`,"permission":[{"id":"modelperm-demo","object":"model_permission","created":`, x.created(),
			`,"allow_create_engine":false,"allow_sampling":true,"allow_logprobs":true,"allow_search_indices":false,`,
			`"allow_view":true,"allow_fine_tuning":false,"organization":"*","group":null,"is_blocking":false}]}`)
	})
	x.add("}")
	x.respond(200, typeJSON, x.buf)
}

// request reads the body and finds the model.
func (v *vllm) request(x *exchange) (Model, bool) {
	if !x.input() {
		return Model{}, false
	}
	if x.p.bad != nil || x.p.none {
		x.fail(failure{status: 400, message: "demo engine: the body is no JSON object"})
		return Model{}, false
	}
	list := v.e.models.all()
	i := slices.IndexFunc(list, func(m Model) bool { return m.Name == x.p.model })
	if i < 0 && !x.p.named && len(list) > 0 {
		i = 0
	}
	if i < 0 {
		x.fail(failure{status: 404, param: "model", message: "The model `" + x.p.model + "` does not exist."})
		return Model{}, false
	}
	return list[i], true
}

func (v *vllm) infer(f form) handler {
	return func(x *exchange) {
		m, ok := v.request(x)
		if !ok {
			return
		}
		if n := x.p.promptTokens(); n > m.Context {
			x.fail(failure{status: 400, message: "This model's maximum context length is " + strconv.Itoa(m.Context) +
				" tokens. However, your request has " + strconv.Itoa(n) + " input tokens."})
			return
		}
		x.infer(f, demand{model: m}, m.Name, x.p.streams(false))
	}
}

func (v *vllm) embeddings(x *exchange) {
	if m, ok := v.request(x); ok {
		x.embedOpenAI(m.Name)
	}
}

func (v *vllm) tokenize(x *exchange) {
	m, ok := v.request(x)
	if !ok {
		return
	}
	x.add(`{"count":`)
	x.num(x.p.promptTokens())
	x.add(`,"max_model_len":`)
	x.num(m.Context)
	x.add(`,"tokens":[]}`)
	x.respond(200, typeJSON, x.buf)
}
