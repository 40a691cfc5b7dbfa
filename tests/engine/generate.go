// SPDX-License-Identifier: Apache-2.0

package engine

import "time"

// generation is one answer of the model that does not exist.
type generation struct {
	model   string // as the answer names it
	seed    seed
	pace    Pace
	n       int  // tokens
	cut     bool // the request's limit ended it
	prompt  int  // tokens of the prompt
	usage   bool
	tool    string // called instead of a text; "" is none
	args    string // JSON
	joined  bool
	long    int // least length of the first token, for a fault
	id      string
	problem string // words of an error in mid-stream; empty for the usual ones
	// pre and suf stand before and after the text in each event, built once.
	pre, suf []byte
	seq      int // of the next event, where events count
}

// form is a way to put a generation on the wire: one for each kind of stream and
// its one-shot twin. A form is stateless. What open, delta and finish append to
// x.buf goes out as chunks wherever they call x.emit.
type form interface {
	contentType() string
	open(x *exchange)             // before the first token
	delta(x *exchange, token int) // one token; the chunk is ended by the caller
	finish(x *exchange)           // all that is left but the terminator
	terminate(x *exchange)        // the terminator
	whole(x *exchange)            // the answer that is not streamed
	failed(x *exchange)           // the engine's own error in mid-stream
}

// prepare fills in x.g for an answer to the request.
func (x *exchange) prepare(model string) {
	pace := x.e.Pace()
	g := &x.g
	*g = generation{model: model, seed: x.seed(), pace: pace, n: pace.chunks(), prompt: x.p.promptTokens(),
		usage: x.p.usage, joined: pace.Joined && pace.Delay == 0, pre: g.pre[:0], suf: g.suf[:0]}
	if x.p.limit > 0 && x.p.limit < g.n {
		g.n, g.cut = x.p.limit, true
	}
	g.tool, g.args = x.p.wantsTool()
	if g.tool != "" {
		g.n, g.cut = 1, false
	}
	if f := x.plan.find(KindFraming); f != nil && f.Form == "long-line" {
		if g.long = f.Bytes; g.long == 0 {
			g.long = 1 << 20
		}
	}
	x.stream.expected = g.n
}

// generate answers in a form, as a stream or whole. The slot is held already.
func (x *exchange) generate(f form, stream bool) {
	if !stream {
		x.sleep(x.g.pace.First + time.Duration(x.g.n-1)*x.g.pace.Delay)
		if x.err == nil {
			f.whole(x)
		}
		x.stopEvicted()
		return
	}
	if !x.stream.started && (x.e.dialect.headersEarly() || x.plan.find(KindHeadersEarly) != nil) {
		x.startStream(f.contentType(), true)
	}
	x.sleep(x.g.pace.First)
	if x.err == nil && !x.stream.started {
		x.startStream(f.contentType(), false)
	}
	f.open(x)
	fail := x.plan.find(KindStreamError)
	for i := range x.g.n {
		if i > 0 && x.g.pace.Delay > 0 {
			x.sleep(x.g.pace.Delay)
		}
		if x.err != nil {
			break
		}
		f.delta(x, i)
		x.emit()
		if fail != nil && x.stream.events >= fail.middle(x) {
			x.failStream(f, fail)
			return
		}
	}
	if x.stopEvicted() {
		f.failed(x)
		x.endStream()
		return
	}
	if x.err != nil {
		return
	}
	x.conclude(f)
}

// conclude ends a stream that went well.
func (x *exchange) conclude(f form) {
	f.finish(x)
	if len(x.plan.moments(AtBeforeTerminator)) > 0 {
		x.emit()
		x.flush()
		x.at(AtBeforeTerminator)
	}
	if x.plan.find(KindNoTerminator) == nil && x.err == nil {
		f.terminate(x)
	}
	x.endStream()
}

// stopEvicted turns the eviction of the model into an error of the stream.
func (x *exchange) stopEvicted() bool {
	if x.err != errEvicted {
		return false
	}
	x.err, x.evicted = nil, nil
	if !x.stream.started {
		x.fail(failure{status: 500, message: "demo engine: model unloaded"})
		x.err = errCut
		return false
	}
	return true
}

// problem returns the words of an error in mid-stream, as a JSON string.
func (x *exchange) problem() string {
	return quoted(orText(x.g.problem, "demo engine: an error in mid-stream"))
}

// failStream ends a stream with an error, in the form the fault asks for or else
// in the engine's own.
func (x *exchange) failStream(f form, fault *fault) {
	x.g.problem = fault.Message
	text := x.problem()
	switch fault.Form {
	case "ndjson":
		x.add(`{"error":`, text, "}\n")
	case "data", "data-done":
		x.add(`data: {"error":{"message":`, text, `,"type":"server_error","code":500}}`, "\n\n")
		if fault.Form == "data-done" {
			x.emit()
			x.add("data: [DONE]\n\n")
		}
	case "event":
		x.add("event: error\ndata: ", `{"type":"error","error":{"type":"api_error","message":`, text, "}}\n\n")
	case "event-bare":
		x.add("event: error\ndata: ", `{"code":500,"message":`, text, `,"type":"server_error"}`, "\n\n")
	case "none":
	case "empty-model":
		x.g.model = ""
		openAIChat{}.empty(x)
	default:
		f.failed(x)
	}
	x.endStream()
}
