// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"strconv"
	"strings"
)

// dialect is one engine's way to route, to write heads, and to word errors.
type dialect interface {
	// serve answers a request whose body has not been read.
	serve(x *exchange)
	// head appends the headers of an answer; length is noLength or chunkedBody,
	// or that of the body.
	head(b []byte, x *exchange, status int, contentType string, length int) []byte
	// fail answers with an error.
	fail(x *exchange, f failure)
	// headersEarly reports whether a stream's head goes out before its first token.
	headersEarly() bool
}

// failure is an error before each engine words it.
type failure struct {
	status  int
	kind    string // the error's type, where the engine has types; empty is the status's usual one
	message string
	param   string
	code    string
}

// failBusy is the answer to one request too many in a queue.
var failBusy = failure{status: 503, message: "server busy, please try again.  maximum pending requests exceeded"}

// handler answers one route.
type handler func(x *exchange)

// routes are handlers by path and method. A path that ends in "/" stands for all
// below it.
type routes map[string]map[string]handler

// find returns the methods of a path, nil if there are none.
func (r routes) find(path string) map[string]handler {
	if methods := r[path]; methods != nil {
		return methods
	}
	for i := strings.LastIndexByte(path, '/'); i > 0 && i+1 < len(path); i = strings.LastIndexByte(path[:i], '/') {
		if methods := r[path[:i+1]]; methods != nil {
			return methods
		}
	}
	return nil
}

func newDialect(e *Engine) dialect {
	switch e.cfg.Dialect {
	case LMStudio:
		return newLMStudio(e)
	case LlamaCpp, LlamaCppRouter:
		return newLlama(e)
	case VLLM:
		return newVLLM(e)
	}
	return newOllama(e)
}

func (x *exchange) fail(f failure) {
	x.buf = x.buf[:0]
	x.e.dialect.fail(x, f)
}

// appendLength appends the header that says how the body is framed.
func appendLength(b []byte, length int, name, transfer string) []byte {
	switch length {
	case noLength:
	case chunkedBody:
		b = append(b, transfer...)
		b = append(b, ": chunked\r\n"...)
	default:
		b = append(b, name...)
		b = append(b, ": "...)
		b = strconv.AppendInt(b, int64(length), 10)
		b = append(b, "\r\n"...)
	}
	return b
}

// anthropic reports whether errors are worded as Anthropic's.
func (x *exchange) anthropic() bool { return strings.HasSuffix(x.path, "/v1/messages") }

// infer answers a request for a model in a form: it waits for the load and for a
// slot, generates, and lets both go.
func (x *exchange) infer(f form, d demand, echo string, stream bool) {
	x.prepare(echo)
	in, err := x.e.models.use(x, d)
	if err != nil {
		x.refuse(err)
		return
	}
	keep, said := x.p.keep()
	if said {
		x.e.models.keepFor(in, keep)
	}
	defer x.letGo(in, said && keep == 0)
	if stream && x.e.dialect.headersEarly() {
		x.early = f
	}
	if err := x.e.slots.enter(x, d.model.Name); err != nil {
		x.refuse(err)
		return
	}
	defer x.e.slots.leave(x, d.model.Name)
	x.generate(f, stream)
}

func (x *exchange) letGo(in *instance, unload bool) {
	x.e.models.done(in, x.e.cfg.Dialect != Ollama)
	if unload {
		x.e.models.unload(in.id, false)
	}
}

// refuse answers a request that gets no model or no slot.
func (x *exchange) refuse(err error) {
	switch {
	case errors.Is(err, errBusy):
		x.fail(failBusy)
	case errors.Is(err, errLoadFailed):
		f := x.plan.find(KindLoadFailed)
		x.fail(failure{status: 500,
			message: orText(f.Message, "llama-server process has terminated: exit status 1: error: invalid argument")})
	}
	x.stopEvicted()
}

// vector appends the embedding of a text: eight numbers made from its length and
// letters alone.
func (x *exchange) vector(text string) {
	h := uint32(2166136261)
	x.add("[")
	for i := range 8 {
		for j := range len(text) {
			h = (h ^ uint32(text[j])) * 16777619
		}
		h = (h ^ uint32(i)) * 16777619
		if i > 0 {
			x.add(",")
		}
		x.buf = strconv.AppendFloat(x.buf, float64(int32(h))/(1<<31), 'f', 6, 64)
	}
	x.add("]")
}

// inputs returns the texts to embed.
func (x *exchange) inputs() []string {
	if !x.p.prompt.IsArray() {
		return []string{x.p.prompt.String()}
	}
	var texts []string
	for _, text := range x.p.prompt.Array() {
		texts = append(texts, text.String())
	}
	return texts
}

// embedOpenAI answers /v1/embeddings.
func (x *exchange) embedOpenAI(echo string) {
	x.prepare(echo)
	x.sleep(x.g.pace.First)
	x.add(`{"object":"list","data":[`)
	for i, text := range x.inputs() {
		if i > 0 {
			x.add(",")
		}
		x.add(`{"object":"embedding","embedding":`)
		x.vector(text)
		x.add(`,"index":`)
		x.num(i)
		x.add("}")
	}
	x.add(`],"model":`, quoted(echo), `,"usage":{"prompt_tokens":`)
	x.num(x.g.prompt)
	x.add(`,"total_tokens":`)
	x.num(x.g.prompt)
	x.add("}}")
	x.respondOpenAI(200)
}
