// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// lmstudio speaks as LM Studio's server does, an Express application.
type lmstudio struct {
	e      *Engine
	routes routes
	dates  dates
}

func newLMStudio(e *Engine) *lmstudio {
	l := &lmstudio{e: e}
	get := func(h handler) map[string]handler { return map[string]handler{"GET": h} }
	post := func(h handler) map[string]handler { return map[string]handler{"POST": h} }
	l.routes = routes{
		"/lmstudio-greeting":              get(func(x *exchange) { x.respond(200, typeJSONUTF8, []byte(`{"lmstudio":true}`)) }),
		"/v1/models":                      get(l.v1Models),
		"/v1/chat/completions":            post(l.infer(openAIChat{})),
		"/v1/completions":                 post(l.infer(openAICompletions{})),
		"/v1/embeddings":                  post(l.embeddings),
		"/v1/responses":                   post(l.infer(responses{})),
		"/v1/messages":                    post(l.infer(messages{})),
		"/api/v0/models":                  get(l.v0Models),
		"/api/v0/models/":                 get(l.v0Model),
		"/api/v0/chat/completions":        post(l.infer(openAIChat{})),
		"/api/v0/completions":             post(l.infer(openAICompletions{})),
		"/api/v0/embeddings":              post(l.embeddings),
		"/api/v1/models":                  get(l.v1NativeModels),
		"/api/v1/models/load":             post(l.load),
		"/api/v1/models/unload":           post(l.unload),
		"/api/v1/models/download":         post(l.download),
		"/api/v1/models/download/status/": get(l.downloadStatus),
		"/api/v1/chat":                    post(l.chat),
	}
	return l
}

func (l *lmstudio) headersEarly() bool { return false }

func (l *lmstudio) head(b []byte, x *exchange, _ int, contentType string, length int) []byte {
	b = append(b, "X-Powered-By: Express\r\n"...)
	b = append(b, x.extra...)
	if contentType != "" {
		b = append(b, "Content-Type: "...)
		b = append(b, contentType...)
		b = append(b, "\r\n"...)
	}
	if contentType == typeSSE {
		b = append(b, "Cache-Control: no-cache\r\n"...)
	}
	b = appendLength(b, length, "Content-Length", "Transfer-Encoding")
	b = append(b, "Date: "...)
	b = append(b, l.dates.text()...)
	if x.close && x.plan.find(KindBothHeaders) == nil {
		return append(b, "\r\nConnection: close\r\n"...)
	}
	if x.plan.find(KindBothHeaders) != nil {
		return append(b, "\r\nConnection: close\r\nKeep-Alive: timeout=5\r\n"...)
	}
	return append(b, "\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\n"...)
}

func (l *lmstudio) serve(x *exchange) {
	if strings.EqualFold(x.header("Upgrade"), "websocket") {
		x.websocket()
		return
	}
	if key := l.e.cfg.APIKey; key != "" && !x.hasKey(key) {
		x.skipBody()
		x.fail(failure{status: 401, kind: "invalid_api_key", message: "demo engine: a key is wanted"})
		return
	}
	if l.e.cfg.CORS {
		x.set("Access-Control-Allow-Origin", "*")
		if x.method == "OPTIONS" {
			x.set("Access-Control-Allow-Methods", "GET,HEAD,PUT,PATCH,POST,DELETE")
			x.set("Access-Control-Allow-Headers", "*")
			x.empty(204)
			return
		}
	}
	h := l.routes.find(x.path)[x.method]
	if h == nil {
		x.skipBody()
		x.add(`{"error":`, quoted(fmt.Sprintf("Unexpected endpoint or method. (%s %s)", x.method, x.path)), "}")
		x.respond(200, typeJSONUTF8, x.buf)
		return
	}
	h(x)
}

// hasKey reports whether the request carries the key in one of the two usual ways.
func (x *exchange) hasKey(key string) bool {
	return x.header("Authorization") == "Bearer "+key || x.header("X-Api-Key") == key
}

// native reports whether a path is one of LM Studio's own.
func native(path string) bool { return strings.HasPrefix(path, "/api/v1/") }

func (l *lmstudio) fail(x *exchange, f failure) {
	kind, param := f.kind, "null"
	if kind == "" {
		kind = map[int]string{400: "invalid_request_error", 404: "invalid_request_error"}[f.status]
		if native(x.path) {
			kind = map[int]string{400: "invalid_request", 404: "model_not_found"}[f.status]
		}
		kind = orText(kind, "internal_error")
	}
	if f.param != "" {
		param = quoted(f.param)
	}
	code := "null"
	if f.code != "" {
		code = quoted(f.code)
	}
	switch {
	case x.anthropic():
		x.add(`{"type":"error","error":{"type":"`, kind, `","message":`, quoted(f.message), `}}`)
	case native(x.path):
		x.add(`{"error":{"message":`, quoted(f.message), `,"type":"`, kind, `","code":`, code, `,"param":`, param, `}}`)
	default:
		x.add(`{"error":{"message":`, quoted(f.message), `,"type":"`, kind, `","param":`, param, `,"code":`, code, `}}`)
	}
	x.respond(f.status, typeJSONUTF8, indent(x.buf))
}

// indent lays JSON out as Express does when told to: two blanks a level.
func indent(b []byte) []byte {
	var out bytes.Buffer
	if err := json.Indent(&out, b, "", "  "); err != nil {
		return b // not JSON, as a fault may want it
	}
	return out.Bytes()
}

// request reads and checks the JSON body.
func (l *lmstudio) request(x *exchange) bool {
	if !x.input() {
		return false
	}
	if x.p.bad != nil || x.p.none {
		x.fail(failure{status: 400, message: "demo engine: the body is no JSON object"})
		return false
	}
	return true
}

// model finds the model that answers, which is not always the one asked for.
func (l *lmstudio) model(x *exchange) (Model, bool) {
	loaded := l.e.models.running()
	if l.e.cfg.JITOff && len(loaded) == 0 {
		x.fail(failure{status: 404, param: "model", code: "model_not_found",
			message: "No models loaded. Please load a model in the developer page or use the `lms load` command."})
		return Model{}, false
	}
	name, _, _ := strings.Cut(x.p.model, "@") // a variant
	for _, r := range loaded {
		if r.id == x.p.model {
			return r.model, true
		}
	}
	m, ok := l.e.models.find(name)
	if ok && l.e.cfg.JITOff {
		ok, _ = l.e.models.isLoaded(name)
	}
	if !ok && (l.e.cfg.OnlyAnswers || x.p.model == "") && len(loaded) == 1 {
		return loaded[0].model, true
	}
	if !ok {
		var names []string
		for _, m := range l.e.models.all() {
			if m.Type != "embedding" {
				names = append(names, m.Name)
			}
		}
		x.fail(failure{status: 404, param: "model", code: "model_not_found", message: fmt.Sprintf(
			"Model %q not found. Please specify a valid model.\n\nYour models:\n\n%s", x.p.model, strings.Join(names, "\n"))})
	}
	return m, ok
}

func (l *lmstudio) infer(f form) handler {
	return func(x *exchange) {
		if !l.request(x) {
			return
		}
		m, ok := l.model(x)
		if !ok {
			return
		}
		stream := x.p.streams(false)
		if n := x.p.promptTokens(); n > m.Context { // a stream has begun by the time that shows
			l.overflow(x, stream)
			return
		}
		x.infer(f, demand{model: m}, m.Name, stream)
	}
}

func (l *lmstudio) overflow(x *exchange, stream bool) {
	const text = "The number of tokens to keep from the initial prompt is greater than the context length."
	if !stream {
		x.fail(failure{status: 400, message: text})
		return
	}
	x.startStream(typeSSE, false)
	x.add("event: error\n", `data: {"error":{"message":"`, text, `"}}`, "\n\n")
	x.endStream()
}

func (l *lmstudio) embeddings(x *exchange) {
	if !l.request(x) {
		return
	}
	if m, ok := l.model(x); ok {
		x.embedOpenAI(m.Name)
	}
}
