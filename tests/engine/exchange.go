// SPDX-License-Identifier: Apache-2.0

package engine

// exchange is one request and its answer. Each connection has one, used again
// and again. Once err is set nothing more is written, and the connection ends.
type exchange struct {
	e *Engine
	c *conn

	// The request.
	raw                     []byte // buffer behind head
	head                    string // as it came, up to the blank line
	method, path, query     string
	headers                 []header
	length                  int64 // of the body; -1 is chunked
	old, keepOld            bool  // HTTP/1.0, and with Connection: keep-alive
	expect                  bool  // Expect: 100-continue
	close                   bool  // the connection ends with this exchange
	body                    []byte
	bodyDone                bool
	reader                  bodyReader
	p                       params
	rec                     *record
	plan                    plan
	evicted                 <-chan struct{} // closed to cut this request's stream
	early                   form            // its head goes out before there is a slot; nil mostly
	err                     error
	fatal                   *fault // how to end the connection, with err
	g                       generation
	buf, wire, extra, joint []byte // body text, bytes to write, further headers, chunks kept for one write
	stream                  streamState
}

// streamState is how far an answer has come.
type streamState struct {
	status   int
	started  bool // the head is built
	live     bool // the body is a stream
	chunked  bool
	bare     bool // no body: an answer to HEAD
	events   int  // emitted so far
	expected int  // events there will be, more or less
}

// reset prepares for the next request and keeps the buffers.
func (x *exchange) reset() {
	clear(x.headers)
	if cap(x.body) > keptBody {
		x.body = nil
	}
	*x = exchange{e: x.e, c: x.c, raw: x.raw, headers: x.headers[:0], body: x.body[:0],
		reader: bodyReader{hash: hasher{h: x.reader.hash.h}}, plan: x.plan[:0], g: generation{pre: x.g.pre, suf: x.g.suf},
		buf: x.buf[:0], wire: x.wire[:0], extra: x.extra[:0], joint: x.joint[:0]}
}

// begin makes the witness's record of a request whose head is in.
func (x *exchange) begin() {
	x.rec = x.e.witness.begin(x)
	x.bodyDone = x.length == 0
	x.stream.bare = x.method == "HEAD"
}

// serve answers a request whose head is well formed.
func (x *exchange) serve() {
	x.e.Faults.choose(x, false)
	x.at(AtHead)
	if x.bodyDone {
		x.at(AtBody)
	}
	if x.err != nil || x.plan.answer(x, AtHead) {
		return
	}
	if x.e.slow.Load() {
		x.skipBody()
		x.fail(failure{status: 503, kind: "unavailable_error", message: "Loading model"})
		return
	}
	x.e.dialect.serve(x)
}

// end closes the record and leaves the connection ready for the next request.
func (x *exchange) end() {
	if x.err == nil {
		x.at(AtEnd)
	}
	if x.err == nil && !x.bodyDone {
		if x.length > 0 && x.length <= 256<<10 && !x.close { // as net/http: a short rest is worth the connection
			x.skipBody()
		} else {
			x.close = true
		}
	}
	x.e.witness.end(x.rec, x)
}

// input reads and parses the JSON body, and chooses the faults that depend on
// it. It reports whether there is more to do. Problems with the JSON itself are
// left in x.p.bad, since each engine words them its own way.
func (x *exchange) input() bool {
	switch err := x.takeBody(); {
	case err == errTooLong:
		x.close = true
		x.empty(413)
		return false
	case err != nil:
		return false
	}
	x.p = parseParams(x.body, x.e.cfg.Dialect == Ollama)
	if x.e.Faults.some() {
		x.e.Faults.choose(x, true)
	}
	x.rec.model(x.e.witness, x.p.model)
	if x.length != 0 {
		x.at(AtBody)
	}
	return x.err == nil && !x.plan.answer(x, AtBody)
}
