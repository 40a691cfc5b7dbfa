// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strconv"
	"strings"
)

// header is one line of a request's head.
type header struct{ name, value string }

// headLimits are the sizes of a head that the engines refuse, with what status.
var headLimits = map[Dialect]struct{ bytes, status int }{
	Ollama:         {1 << 20, 431},
	LMStudio:       {16 << 10, 431},
	LlamaCpp:       {8 << 10, 400},
	LlamaCppRouter: {8 << 10, 400},
	VLLM:           {64 << 10, 400},
}

// readHead reads a request's head into the exchange. A status other than 0 is
// the answer to a head that is no HTTP/1.x or too long.
func (c *conn) readHead() (status int, err error) {
	x := &c.x
	limit := headLimits[c.e.cfg.Dialect]
	x.raw = x.raw[:0]
	for {
		line, err := c.br.ReadSlice('\n')
		x.raw = append(x.raw, line...)
		if len(x.raw) > limit.bytes {
			x.head = string(x.raw[:limit.bytes])
			return limit.status, nil
		}
		if err != nil && len(line) < c.br.Size() { // not just a line longer than the buffer
			return 0, err
		}
		if blank := len(line) <= 2 && strings.TrimRight(string(line), "\r\n") == ""; blank {
			if len(x.raw) > len(line) {
				break
			}
			x.raw = x.raw[:0] // blank lines ahead of a request are skipped
		}
	}
	x.head = string(x.raw)
	if !x.parseHead() {
		return 400, nil
	}
	return 0, nil
}

// parseHead takes x.head apart. Everything it keeps is a part of that string.
func (x *exchange) parseHead() bool {
	line, rest, _ := strings.Cut(x.head, "\n")
	method, target, ok1 := strings.Cut(strings.TrimSuffix(line, "\r"), " ")
	target, proto, ok2 := strings.Cut(target, " ")
	if !ok1 || !ok2 || method == "" || !strings.HasPrefix(proto, "HTTP/1.") {
		return false
	}
	if i := strings.Index(target, "://"); i > 0 { // absolute form
		if j := strings.IndexByte(target[i+3:], '/'); j >= 0 {
			target = target[i+3+j:]
		}
	}
	x.method, x.old = method, proto == "HTTP/1.0"
	x.path, x.query, _ = strings.Cut(target, "?")
	x.length, x.close = 0, x.old
	for rest != "" {
		line, rest, _ = strings.Cut(rest, "\n")
		line = strings.TrimSuffix(line, "\r")
		if line == "" {
			break
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			return false
		}
		value = strings.Trim(value, " \t")
		x.headers = append(x.headers, header{name, value})
		if !x.framing(name, value) {
			return false
		}
	}
	return true
}

// framing notes what a header says about the body or the connection.
func (x *exchange) framing(name, value string) bool {
	switch {
	case equalFold(name, "Content-Length"):
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 {
			return false
		}
		if x.length >= 0 {
			x.length = n
		}
	case equalFold(name, "Transfer-Encoding"):
		if !strings.EqualFold(value, "chunked") {
			return false
		}
		x.length = -1
	case equalFold(name, "Connection"):
		for option := range strings.SplitSeq(value, ",") {
			switch option = strings.Trim(option, " \t"); {
			case strings.EqualFold(option, "close"):
				x.close = true
			case strings.EqualFold(option, "keep-alive") && x.old:
				x.close, x.keepOld = false, true
			}
		}
	case equalFold(name, "Expect"):
		x.expect = strings.EqualFold(value, "100-continue")
	}
	return true
}

// equalFold is strings.EqualFold with the cheap comparison first.
func equalFold(a, b string) bool { return len(a) == len(b) && strings.EqualFold(a, b) }

// header returns a header's value, and "" without one.
func (x *exchange) header(name string) string {
	for _, h := range x.headers {
		if equalFold(h.name, name) {
			return h.value
		}
	}
	return ""
}
