// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"net/http"
	"strconv"
)

// Content types, as the engines spell them.
const (
	typeJSON     = "application/json"
	typeJSONUTF8 = "application/json; charset=utf-8"
	typeNDJSON   = "application/x-ndjson"
	typeSSE      = "text/event-stream"
	typeSSEUTF8  = "text/event-stream; charset=utf-8"
	typeText     = "text/plain"
	typeTextUTF8 = "text/plain; charset=utf-8"
)

// noLength leaves the Content-Length out; the body must be empty.
const noLength = -2

// chunkedBody stands for a body whose length is not known.
const chunkedBody = -1

// set adds a header to the answer.
func (x *exchange) set(name, value string) {
	x.extra = append(x.extra, name...)
	x.extra = append(x.extra, ": "...)
	x.extra = append(x.extra, value...)
	x.extra = append(x.extra, "\r\n"...)
}

// respond answers with a whole body.
func (x *exchange) respond(status int, contentType string, body []byte) {
	x.whole(status, contentType, body, len(body))
}

// empty answers without a body and without a content type.
func (x *exchange) empty(status int) { x.whole(status, "", nil, 0) }

// whole writes an answer that is not streamed; length is what its head says.
func (x *exchange) whole(status int, contentType string, body []byte, length int) {
	x.at(AtBeforeHeaders)
	if x.err != nil {
		return
	}
	x.startHead(status, contentType, length)
	if x.stream.bare {
		body = nil
	}
	if len(x.plan) == 0 {
		x.wire = append(x.wire, body...)
		x.flush()
		return
	}
	if len(x.plan.moments(AtAfterHeaders)) > 0 || x.plan.find(KindHeadersEarly) != nil {
		x.flush()
		x.at(AtAfterHeaders)
	}
	half, last := len(body)/2, max(len(body)-1, len(body)/2)
	x.part(body[:half], AtMidStream)
	x.part(body[half:last], AtBeforeTerminator)
	x.part(body[last:], "")
	x.flush()
}

// part writes a part of a body and pauses for the faults of a moment.
func (x *exchange) part(body []byte, then Moment) {
	x.wire = append(x.wire, body...)
	if len(x.plan.moments(then)) > 0 {
		x.flush()
		x.at(then)
	}
}

// startHead appends the head to what will be written.
func (x *exchange) startHead(status int, contentType string, length int) {
	x.stream.status, x.stream.started = status, true
	for _, f := range x.plan {
		for name, value := range f.Headers {
			x.set(name, value)
		}
	}
	b := append(x.wire, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(status)...)
	b = append(b, "\r\n"...)
	x.wire = append(x.e.dialect.head(b, x, status, contentType, length), "\r\n"...)
}

// startStream begins an answer of unknown length, with status 200 if none is set. Its head goes out with the
// first chunk, or at once where the engine does that.
func (x *exchange) startStream(contentType string, early bool) {
	x.at(AtBeforeHeaders)
	if x.err != nil {
		return
	}
	llama := x.e.cfg.Dialect == LlamaCpp || x.e.cfg.Dialect == LlamaCppRouter
	x.stream.live = true
	x.stream.chunked = !x.old || llama // llama.cpp sends chunks to HTTP/1.0 all the same
	if !x.stream.chunked {
		x.close = true
	}
	length := chunkedBody
	if !x.stream.chunked {
		length = noLength
	}
	x.startHead(max(x.stream.status, 200), contentType, length)
	early = early && x.plan.find(KindHeadersLate) == nil || x.plan.find(KindHeadersEarly) != nil
	if early || len(x.plan.moments(AtAfterHeaders)) > 0 {
		x.flush()
		x.at(AtAfterHeaders)
	}
}

// emit ends an event or line in x.buf: it goes out as a chunk of its own. An
// empty x.buf is none.
func (x *exchange) emit() {
	if x.err != nil || len(x.buf) == 0 {
		return
	}
	b := x.buf
	x.buf = x.buf[:0]
	x.stream.events++
	if len(x.plan) > 0 {
		x.emitFaulty(b)
		if len(x.plan.moments(AtMidStream)) > 0 {
			x.flush()
			x.at(AtMidStream)
		}
		return
	}
	x.chunk(b)
}

// chunk writes b as one chunk.
func (x *exchange) chunk(b []byte) {
	if len(b) == 0 || x.stream.bare || x.err != nil {
		return
	}
	x.wire = x.frame(x.wire, b)
	if x.g.joined && len(x.wire) < 32<<10 {
		return
	}
	x.flush()
}

func (x *exchange) frame(to, b []byte) []byte {
	if !x.stream.chunked {
		return append(to, b...)
	}
	to = strconv.AppendInt(to, int64(len(b)), 16)
	to = append(to, "\r\n"...)
	to = append(to, b...)
	return append(to, "\r\n"...)
}

// endStream ends the body. What is left in x.buf goes out first.
func (x *exchange) endStream() {
	if len(x.buf) > 0 {
		x.emit()
	}
	if len(x.joint) > 0 && x.plan.form(KindFraming) == "joined" {
		x.chunk(x.joint)
	}
	if x.err != nil {
		return
	}
	if f := x.plan.find(KindHoldOpen); f != nil {
		x.flush()
		x.await(f.cleared, f.duration())
	}
	if x.stream.chunked && !x.stream.bare && x.err == nil {
		x.wire = append(x.wire, "0\r\n\r\n"...)
	}
	x.flush()
}

// flush writes what has gathered.
func (x *exchange) flush() {
	b := x.wire
	x.wire = x.wire[:0]
	if len(b) == 0 || x.err != nil {
		return
	}
	if f := x.plan.find(KindTrickle); f != nil {
		x.trickle(b, f)
		return
	}
	x.write(b)
}

func (x *exchange) write(b []byte) {
	n, err := x.c.nc.Write(b)
	x.rec.sent.Add(int64(n))
	x.e.witness.wrote()
	if err != nil {
		x.left(err)
	}
}

// trickle writes a few bytes at a time.
func (x *exchange) trickle(b []byte, f *fault) {
	size := max(f.Bytes, 1)
	for len(b) > 0 && x.err == nil {
		n := min(size, len(b))
		x.write(b[:n])
		if b = b[n:]; len(b) > 0 {
			x.sleep(f.duration())
		}
	}
}
