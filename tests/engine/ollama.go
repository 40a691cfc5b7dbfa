// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
)

// ollama speaks as Ollama does, a server on net/http and gin.
type ollama struct {
	e      *Engine
	routes routes
	dates  dates
	root   []byte
}

func newOllama(e *Engine) *ollama {
	o := &ollama{e: e, root: []byte("Ollama is running")}
	get := func(h handler) map[string]handler { return map[string]handler{"GET": h} }
	getHead := func(h handler) map[string]handler { return map[string]handler{"GET": h, "HEAD": h} }
	post := func(h handler) map[string]handler { return map[string]handler{"POST": h} }
	o.routes = routes{
		"/":                    getHead(func(x *exchange) { x.respond(200, typeTextUTF8, o.root) }),
		"/api/version":         getHead(o.version),
		"/api/tags":            getHead(o.tags),
		"/api/ps":              get(o.ps),
		"/api/status":          get(func(x *exchange) { x.respond(200, typeJSONUTF8, []byte(`{"cloud":{"disabled":true}}`)) }),
		"/api/me":              post(o.signedOut),
		"/api/signout":         post(o.signedOut),
		"/api/show":            post(o.show),
		"/api/chat":            post(o.chat),
		"/api/generate":        post(o.generate),
		"/api/embed":           post(o.embed),
		"/api/embeddings":      post(o.embeddings),
		"/api/pull":            post(o.pull),
		"/api/push":            post(o.push),
		"/api/create":          post(o.create),
		"/api/copy":            post(o.copy),
		"/api/delete":          {"DELETE": o.delete},
		"/api/blobs/":          {"HEAD": o.blobHead, "POST": o.blobPost},
		"/v1/models":           get(o.v1Models),
		"/v1/models/":          get(o.v1Model),
		"/v1/chat/completions": post(o.v1(openAIChat{})),
		"/v1/completions":      post(o.v1(openAICompletions{})),
		"/v1/responses":        post(o.v1(responses{})),
		"/v1/messages":         post(o.v1(messages{})),
		"/v1/embeddings":       post(o.v1Embeddings),
	}
	return o
}

func (o *ollama) headersEarly() bool { return false }

func (o *ollama) head(b []byte, x *exchange, status int, contentType string, length int) []byte {
	b = append(b, x.extra...)
	if contentType != "" {
		b = append(b, "Content-Type: "...)
		b = append(b, contentType...)
		b = append(b, "\r\n"...)
	}
	b = append(b, "Date: "...)
	b = append(b, o.dates.text()...)
	b = append(b, "\r\n"...)
	if status != 204 {
		b = appendLength(b, length, "Content-Length", "Transfer-Encoding")
	}
	if x.close || x.plan.find(KindBothHeaders) != nil {
		b = append(b, "Connection: close\r\n"...)
	} else if x.keepOld {
		b = append(b, "Connection: keep-alive\r\n"...)
	}
	return b
}

func (o *ollama) serve(x *exchange) {
	if !o.allowedHost(x.header("Host")) {
		x.empty(403)
		return
	}
	methods := o.routes.find(x.path)
	if o.crossOrigin(x, methods) {
		return
	}
	h := methods[x.method]
	if h == nil {
		o.noRoute(x, methods)
		return
	}
	h(x)
}

// noRoute answers what has no handler: gin's redirect, 404 or 405.
func (o *ollama) noRoute(x *exchange, methods map[string]handler) {
	if methods != nil {
		x.set("Allow", allow(methods))
		x.respond(405, typeText, []byte("405 method not allowed"))
		return
	}
	clean := path.Clean(x.path)
	if clean != x.path && o.routes.find(clean)[x.method] != nil {
		x.set("Location", clean)
		if x.method == "GET" || x.method == "HEAD" {
			x.respond(301, "text/html; charset=utf-8", fmt.Appendf(nil, "<a href=\"%s\">Moved Permanently</a>.\n\n", clean))
			return
		}
		x.empty(307)
		return
	}
	x.respond(404, typeText, []byte("404 page not found"))
}

func allow(methods map[string]handler) string {
	var names []string
	for name := range methods {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// fail words an error as the path's dialect.
func (o *ollama) fail(x *exchange, f failure) {
	switch {
	case x.anthropic():
		kind := map[int]string{400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
			404: "not_found_error", 429: "rate_limit_error", 503: "overloaded_error"}[f.status]
		if f.status == 503 {
			o.eventHeaders(x)
		}
		x.add(`{"type":"error","error":{"type":"`, orText(kind, "api_error"), `","message":`, quoted(f.message),
			`},"request_id":"req_`)
		x.buf = x.seed().appendHex(x.buf, 16)
		x.add("00000000\"}\n")
		x.respond(f.status, typeJSON, x.buf)
	case strings.HasPrefix(x.path, "/v1/"):
		kind := map[int]string{400: "invalid_request_error", 404: "not_found_error"}[f.status]
		x.add(`{"error":{"message":`, quoted(f.message), `,"type":"`, orText(kind, "api_error"), `","param":null,"code":null}}`)
		if f.kind == "early" { // before Ollama's own writer is at work: other type, no newline
			x.respond(f.status, typeJSONUTF8, x.buf)
			return
		}
		x.add("\n")
		x.respond(f.status, typeJSON, x.buf)
	default:
		x.add(`{"error":`, quoted(f.message), "}")
		x.respond(f.status, orText(f.kind, typeJSONUTF8), x.buf)
	}
}

// eventHeaders adds what /v1/messages and /v1/responses add to streams, whole
// answers excepted, and to errors of the queue.
func (o *ollama) eventHeaders(x *exchange) {
	if x.anthropic() || strings.HasSuffix(x.path, "/v1/responses") {
		x.set("Cache-Control", "no-cache")
		if !x.close {
			x.set("Connection", "keep-alive")
		}
	}
}

func (o *ollama) signedOut(x *exchange) {
	x.skipBody()
	x.fail(failure{status: 401, message: "unauthorized"})
}

func (o *ollama) version(x *exchange) {
	x.add(`{"version":`, quoted(o.e.cfg.Version), "}")
	x.respond(200, typeJSONUTF8, x.buf)
}

// request reads and checks the JSON body of a native route. It reports whether
// there is more to do.
func (o *ollama) request(x *exchange) bool {
	if !x.input() {
		return false
	}
	early := strings.HasPrefix(x.path, "/v1/")
	f := failure{status: http.StatusBadRequest}
	if early {
		f.kind = "early"
	}
	switch {
	case x.p.none:
		f.message = "missing request body"
	case x.p.bad != nil:
		f.message = x.p.bad.Error()
	default:
		return true
	}
	x.fail(f)
	return false
}

// model looks a model up by what a request calls it; missing words the error,
// with the name in place of %s.
func (o *ollama) model(x *exchange, name, missing string) (Model, bool) {
	if badName(name) {
		x.fail(failure{status: 400, message: "invalid model name"})
		return Model{}, false
	}
	m, ok := o.e.models.find(canonical(name))
	if !ok {
		x.fail(failure{status: 404, message: fmt.Sprintf(missing, name)})
	}
	return m, ok
}
