// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"strconv"
	"strings"
)

// llama speaks as llama.cpp's llama-server does, with one model or, as router,
// with several.
type llama struct {
	e      *Engine
	router bool
	routes routes
}

// maxTurns is how many answers a connection gets; the last one says close.
const maxTurns = 100

func newLlama(e *Engine) *llama {
	l := &llama{e: e, router: e.cfg.Dialect == LlamaCppRouter}
	get := func(h handler) map[string]handler { return map[string]handler{"GET": h, "HEAD": h} }
	post := func(h handler) map[string]handler { return map[string]handler{"POST": h} }
	health := get(func(x *exchange) { x.respond(200, typeJSONUTF8, []byte(`{"status":"ok"}`)) })
	chat := post(l.infer(openAIChat{}, "'messages' is required"))
	native := post(l.infer(llamaNative{}, "\"prompt\" must be provided"))
	embeddings := post(l.embeddings)
	l.routes = routes{
		"/health": health, "/v1/health": health,
		"/v1/models": get(l.models), "/models": get(l.models), "/api/tags": get(l.models),
		"/v1/chat/completions": chat, "/chat/completions": chat, "/api/chat": chat,
		"/v1/completions": post(l.infer(openAICompletions{}, "\"prompt\" must be provided")),
		"/completion":     native, "/completions": native,
		"/v1/responses":             post(l.infer(responses{}, "'input' is required")),
		"/v1/messages":              post(l.infer(messages{}, "'messages' is required")),
		"/v1/messages/count_tokens": post(l.countTokens),
		"/v1/embeddings":            embeddings, "/embeddings": embeddings, "/embedding": embeddings,
		"/tokenize": post(l.tokenize),
		"/props":    get(l.props), "/slots": get(l.slots), "/metrics": get(l.metrics),
		"/lora-adapters": get(func(x *exchange) { x.respond(200, typeJSONUTF8, []byte("[]")) }),
	}
	if l.router {
		l.routes["/models/load"] = post(l.load)
		l.routes["/models/unload"] = post(l.unload)
	}
	return l
}

func (l *llama) headersEarly() bool { return false }

func (l *llama) head(b []byte, x *exchange, status int, contentType string, length int) []byte {
	if status >= 400 || x.c.turn >= maxTurns {
		x.close = true
	}
	both := x.plan.find(KindBothHeaders) != nil
	if x.close && !both {
		b = append(b, "Connection: close\r\n"...)
	} else {
		b = append(b, "Keep-Alive: timeout=5, max=100\r\n"...)
	}
	if contentType != "" {
		b = append(b, "Content-Type: "...)
		b = append(b, contentType...)
		b = append(b, "\r\n"...)
	}
	b = append(b, "Server: llama.cpp\r\n"...)
	b = appendLength(b, length, "Content-Length", "Transfer-Encoding")
	b = append(b, "Access-Control-Allow-Origin: "...)
	b = append(b, x.header("Origin")...)
	b = append(b, "\r\n"...)
	if x.method == "HEAD" {
		b = append(b, "Accept-Ranges: bytes\r\n"...)
	}
	if both {
		b = append(b, "Connection: close\r\n"...)
	}
	return append(b, x.extra...)
}

// openPaths need no key.
var openPaths = map[string]bool{"/health": true, "/v1/health": true, "/models": true, "/v1/models": true, "/api/tags": true}

func (l *llama) serve(x *exchange) {
	if x.method == "OPTIONS" {
		x.set("Access-Control-Allow-Credentials", "true")
		x.set("Access-Control-Allow-Headers", "*")
		x.set("Access-Control-Allow-Methods", "GET, POST")
		x.respond(200, "text/html", nil)
		return
	}
	if key := l.e.cfg.APIKey; key != "" && !openPaths[x.path] && !x.hasKey(key) {
		x.skipBody()
		x.fail(failure{status: 401, message: "Invalid API Key"})
		return
	}
	h := l.routes.find(x.path)[x.method]
	if h == nil {
		x.skipBody()
		l.notFound(x)
		return
	}
	h(x)
}

func (l *llama) notFound(x *exchange) { x.fail(failure{status: 404, message: "File Not Found"}) }

// fail words an error; those of the server itself have their members in another
// order than those of its handlers.
func (l *llama) fail(x *exchange, f failure) {
	kind := f.kind
	if kind == "" {
		kind = map[int]string{400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error",
			501: "not_supported_error", 503: "unavailable_error"}[f.status]
	}
	kind = orText(kind, "server_error")
	code := strconv.Itoa(f.status)
	if f.status == 401 || f.status == 404 || f.status == 503 {
		x.add(`{"error":{"message":`, quoted(f.message), `,"type":"`, kind, `","code":`, code, `}}`)
	} else {
		x.add(`{"error":{"code":`, code, `,"message":`, quoted(f.message), `,"type":"`, kind, `"`, f.param, `}}`)
	}
	x.respond(f.status, typeJSONUTF8, x.buf)
}

// request reads and checks the JSON body: broken JSON is the server's fault here.
func (l *llama) request(x *exchange) bool {
	if !x.input() {
		return false
	}
	if x.p.bad != nil || x.p.none {
		at := min(len(x.body), 2)
		x.fail(failure{status: 500, message: fmt.Sprintf("[json.exception.parse_error.101] parse error at line 1, "+
			"column %d: syntax error while parsing object key - invalid literal; last read: '%s'; expected string literal",
			max(at, 1), x.body[:at])})
		return false
	}
	return true
}

// model returns the model that answers: the one there is, whatever is asked for,
// and only in router mode the one that is asked for.
func (l *llama) model(x *exchange) (Model, bool) {
	if !l.router {
		list := l.e.models.all()
		if len(list) == 0 {
			return Model{Name: "demo"}.complete(), true
		}
		return list[0], true
	}
	if x.p.model == "" {
		x.fail(failure{status: 400, message: "model name is missing from the request"})
		return Model{}, false
	}
	m, ok := l.e.models.find(x.p.model)
	if !ok {
		x.fail(failure{status: 400, message: fmt.Sprintf("model '%s' not found", x.p.model)})
		return m, false
	}
	has, _ := l.e.models.isLoaded(m.Name)
	if !has && (l.e.cfg.JITOff || strings.Contains(x.query, "autoload=false")) {
		x.fail(failure{status: 400, message: "model is not loaded"})
		return m, false
	}
	return m, true
}

// infer answers an inference route; missing is the error for one without a text.
func (l *llama) infer(f form, missing string) handler {
	return func(x *exchange) {
		if !l.request(x) {
			return
		}
		m, ok := l.model(x)
		if !ok {
			return
		}
		if !x.p.messages.Exists() && !x.p.prompt.Exists() {
			x.fail(failure{status: 400, message: missing})
			return
		}
		if n := x.p.promptTokens(); n > m.Context {
			x.fail(failure{status: 400, kind: "exceed_context_size_error",
				message: fmt.Sprintf("request (%d tokens) exceeds the available context size (%d tokens), try increasing it",
					n, m.Context),
				param: fmt.Sprintf(`,"n_prompt_tokens":%d,"n_ctx":%d`, n, m.Context)})
			return
		}
		if l.router {
			x.extra = append(x.extra, "Connection: close\r\n"...) // beside its Keep-Alive
		}
		x.infer(f, demand{model: m}, m.Name, x.p.streams(false))
	}
}

func (l *llama) countTokens(x *exchange) {
	if !l.request(x) {
		return
	}
	x.add(`{"input_tokens":`)
	x.num(x.p.promptTokens())
	x.add("}")
	x.respond(200, typeJSONUTF8, x.buf)
}

func (l *llama) tokenize(x *exchange) {
	if !l.request(x) {
		return
	}
	x.add(`{"tokens":[`)
	for i := range words(x.p.all.Get("content")) {
		if i > 0 {
			x.add(",")
		}
		x.num(256 + i)
	}
	x.add("]}")
	x.respond(200, typeJSONUTF8, x.buf)
}

func (l *llama) embeddings(x *exchange) {
	if !l.request(x) {
		return
	}
	if !l.e.cfg.Embeddings {
		x.fail(failure{status: 501,
			message: "This server does not support embeddings. Start it with `--embeddings`"})
		return
	}
	if m, ok := l.model(x); ok {
		x.embedOpenAI(m.Name)
	}
}
