// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// headSlop is how far a head may exceed its bound, as in net/http.
const headSlop = 4 << 10

// exchange is one request and its response: a single allocation, never used
// again, as a handler may keep the context or the request.
type exchange struct {
	ctx  requestContext
	req  http.Request
	body body
	w    response
}

// refusal is an answer to what is no request that a handler may see.
type refusal struct {
	status int
	phrase string // of the status line
	text   string // the body; "" is what the status line says
}

func (r *refusal) Error() string { return r.phrase }

func badRequest(why string) error {
	return &refusal{status: http.StatusBadRequest, phrase: "Bad Request: " + why}
}

// errSilent ends a connection without a word.
var errSilent = errors.New("client left or stalled in a head")

// readRequest reads and checks a head whose first byte is buffered.
func (c *conn) readRequest(first bool) (*exchange, error) {
	var host hostLine
	ahead, whole := c.peekHead(&host)
	if !whole {
		if err := c.beginSlowHead(first, ahead); err != nil {
			return nil, err
		}
	}
	if c.lastPost { // old clients send an empty line behind the body of a POST
		c.skipLineEnds()
	}
	parsed, err := http.ReadRequest(c.br)
	tooLarge := !whole && c.in.room <= 0
	if !whole {
		host = hostLine{}
		host.scan(c.in.seen)
		c.in.bounded, c.in.seen = false, nil
	}
	if err != nil {
		return nil, classify(err, tooLarge)
	}
	if err := check(parsed, host); err != nil {
		return nil, err
	}
	c.lastPost = parsed.Method == http.MethodPost
	c.in.outdate()
	return c.newExchange(parsed), nil
}

// peekHead looks at what is buffered: is it a whole head?
func (c *conn) peekHead(host *hostLine) (ahead []byte, whole bool) {
	ahead, _ = c.br.Peek(c.br.Buffered())
	if len(ahead) < 4 || c.lastPost && (ahead[0] == '\r' || ahead[0] == '\n') {
		return ahead, false
	}
	return ahead, host.scan(ahead)
}

// beginSlowHead prepares for a head that does not arrive at once: it is bounded in
// time and size, and kept for a second look.
func (c *conn) beginSlowHead(first bool, ahead []byte) error {
	c.in.room = c.s.maxHeader() + headSlop
	if first {
		c.in.room -= int64(len(ahead))
	} else {
		var until time.Time
		if d := c.s.ReadHeaderTimeout; d > 0 {
			until = time.Now().Add(d)
		}
		_ = c.in.setDeadline(until)
		if _, err := c.br.Peek(4); err != nil {
			return errSilent
		}
		ahead, _ = c.br.Peek(c.br.Buffered())
	}
	c.in.bounded, c.in.seen = true, append([]byte(nil), ahead...)
	return nil
}

func (c *conn) skipLineEnds() {
	ahead, _ := c.br.Peek(4)
	n := 0
	for n < len(ahead) && (ahead[n] == '\r' || ahead[n] == '\n') {
		n++
	}
	_, _ = c.br.Discard(n)
	if c.in.bounded {
		c.in.seen = c.in.seen[min(n, len(c.in.seen)):]
	}
}

// classify says how a head that could not be read is answered.
func classify(err error, tooLarge bool) error {
	var netErr net.Error
	var opErr *net.OpError
	switch {
	case tooLarge:
		return &refusal{status: http.StatusRequestHeaderFieldsTooLarge, phrase: "Request Header Fields Too Large"}
	case strings.HasPrefix(err.Error(), "unsupported transfer encoding: "),
		strings.HasPrefix(err.Error(), "too many transfer encodings: "): // net/http does not export its type
		return &refusal{http.StatusNotImplemented, "Not Implemented", "Unsupported transfer encoding"}
	case errors.Is(err, io.EOF), errors.As(err, &netErr) && netErr.Timeout(), errors.As(err, &opErr) && opErr.Op == "read":
		return errSilent
	}
	return &refusal{status: http.StatusBadRequest, phrase: "Bad Request"}
}

// check refuses what http.ReadRequest lets through and a server must not.
func check(r *http.Request, host hostLine) error {
	absolute := r.URL.Host != ""
	switch {
	case r.ProtoMajor != 1 && !startsHTTP2(r):
		return &refusal{status: http.StatusHTTPVersionNotSupported,
			phrase: "HTTP Version Not Supported: unsupported protocol version"}
	case !host.found && r.ProtoAtLeast(1, 1) && r.Method != http.MethodConnect && !(startsHTTP2(r) && len(r.Header) == 0):
		return badRequest("missing required Host header")
	case absolute && host.malformed, !absolute && !validHost(r.Host):
		return badRequest("malformed Host header")
	}
	for name, values := range r.Header {
		if !validName(name) {
			return badRequest("invalid header name")
		}
		for _, v := range values {
			if !validValue(v) {
				return badRequest("invalid header value")
			}
		}
	}
	return nil
}

// startsHTTP2 reports whether the client means to speak HTTP/2, which the handler
// sees as a request. net/http marks it as the connection's last one if there are
// no headers.
func startsHTTP2(r *http.Request) bool {
	return r.ProtoMajor == 2 && r.ProtoMinor == 0 && r.Method == "PRI" && r.RequestURI == "*"
}

func (c *conn) newExchange(parsed *http.Request) *exchange {
	x := &exchange{ctx: requestContext{base: c.s.base(), local: c.local}}
	x.req = *parsed.WithContext(&x.ctx)
	x.req.RemoteAddr = c.remote
	x.w.start(c, x)
	if parsed.Body != http.NoBody {
		x.body.start(c, x, parsed)
		x.req.Body = &x.body
	}
	return x
}

// refuse answers what is no request, and gives the client the time to read it.
func (c *conn) refuse(err error) {
	var r *refusal
	if !errors.As(err, &r) || c.s.stopping.Load() {
		return
	}
	text := r.text
	if text == "" {
		text = fmt.Sprint(r.status, " ", r.phrase)
	}
	head := fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n", r.status, r.phrase)
	if c.send([]byte(head+text)) == nil {
		c.linger()
	}
}

// hostLine is what http.ReadRequest does not tell: whether there was a Host, and
// a right one where the target's is what counts.
type hostLine struct {
	found     bool
	malformed bool
}

// scan looks at the lines behind the first one of b, and reports whether they end
// with an empty one.
func (h *hostLine) scan(b []byte) (whole bool) {
	for {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			return false
		}
		b = b[i+1:]
		switch {
		case len(b) > 0 && b[0] == '\n', len(b) > 1 && b[0] == '\r' && b[1] == '\n':
			return true
		case len(b) > 5 && b[4] == ':' && bytes.EqualFold(b[:4], []byte("host")):
			h.take(b[5:])
		}
	}
}

func (h *hostLine) take(b []byte) {
	value, rest, _ := bytes.Cut(b, []byte("\n"))
	h.found = true
	h.malformed = len(rest) > 0 && (rest[0] == ' ' || rest[0] == '\t') || !validHost(string(bytes.Trim(value, " \t\r")))
}
