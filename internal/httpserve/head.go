// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// headFacts are what the framing of a response depends on, as the handler's header
// had it when the head was decided. The header's other lines are in conn.wire
// then: what the handler changes later has no effect.
type headFacts struct {
	hasLength, hasDate, hasType, encoded, hasTrailers bool

	switching     bool // to another protocol
	hasConnection bool
	connection    []string
	coding        []string // Transfer-Encoding
}

// appendHead appends the status line and the lines of the header that say nothing
// about framing.
func (w *response) appendHead(b []byte) []byte {
	b = w.appendStatus(b, w.status)
	for name, values := range w.c.header {
		if w.note(name, values) {
			b = appendLines(b, name, values)
		}
	}
	if w.status == http.StatusSwitchingProtocols && first(w.c.header["Upgrade"]) != "" {
		for _, line := range w.head.connection {
			w.head.switching = w.head.switching || hasToken(line, "upgrade")
		}
	}
	return b
}

// note takes a header into account. It reports whether its lines are sent as they
// are.
func (w *response) note(name string, values []string) bool {
	h := &w.head
	switch name {
	case "Content-Length":
		h.hasLength = true
		w.declare(first(values))
		return false
	case "Connection":
		h.hasConnection, h.connection = true, values
		return false
	case "Transfer-Encoding":
		h.coding = values
		return false
	case "Trailer":
		h.hasTrailers = h.hasTrailers || len(values) > 0
		w.announce(values)
	case "Date":
		h.hasDate = true
	case "Content-Type":
		h.hasType = true
		return w.status != http.StatusNotModified
	case "Content-Encoding":
		h.encoded = first(values) != ""
	default:
		if strings.HasPrefix(name, http.TrailerPrefix) {
			h.hasTrailers = true
			return false
		}
	}
	return true
}

// declare takes the handler's Content-Length; one that is none counts as absent.
func (w *response) declare(value string) {
	if value == "" {
		return
	}
	if n, err := strconv.ParseInt(value, 10, 64); err == nil && n >= 0 {
		w.length = n
		return
	}
	w.c.s.log().Debug("handler set a malformed Content-Length", "addr", w.c.remote)
}

// frame completes the head, once: p is the first part of the body, all of it if
// the handler is done.
func (w *response) frame(p []byte, done bool) {
	if w.sent {
		return
	}
	w.sent = true
	h := &w.head
	coding := first(h.coding)
	if done && !h.hasTrailers && coding == "" && bodyAllowed(w.status) && !h.hasLength && (!w.isHead || len(p) > 0) {
		w.length, h.hasLength = int64(len(p)), true
	}
	connection := w.persistence()
	b := w.c.wire
	if bodyAllowed(w.status) && !h.encoded && !h.hasType && coding == "" && len(p) > 0 {
		b = appendLine(b, "Content-Type", http.DetectContentType(p))
	}
	if !h.hasDate {
		b = append(append(append(b, "Date: "...), w.c.now()...), "\r\n"...)
	}
	b = w.appendFraming(b, coding)
	w.c.wire = append(w.appendConnection(b, connection), "\r\n"...)
	w.silent = w.isHead || !bodyAllowed(w.status)
}

// persistence decides whether the connection ends with this response, reading
// what the handler left of the request if it need not. It returns a line for
// Connection, or "".
func (w *response) persistence() (connection string) {
	h := &w.head
	if w.keep10 && (w.isHead || w.length >= 0 || !bodyAllowed(w.status)) {
		if !h.hasConnection {
			connection = "keep-alive"
		}
	} else if !w.http11 || w.wantsClose {
		w.close = true
	}
	if first(h.connection) == "close" || w.c.s.stopping.Load() || w.x.body.expect && !w.x.body.sawEnd() {
		w.close = true
	}
	if w.req.ContentLength != 0 && !w.close && !w.fullDuplex {
		reusable, tooBig := w.x.body.drain()
		w.close = !reusable
		if tooBig {
			h.connection, connection = nil, "close"
		}
	}
	return connection
}

// appendFraming says how long the body is.
func (w *response) appendFraming(b []byte, coding string) []byte {
	length := w.head.hasLength && w.length >= 0 && bodyAllowed(w.status)
	known := w.length >= 0
	if coding != "" && coding != "identity" {
		length, known = false, false // a coding of the handler's own comes before its length
	}
	switch {
	case w.isHead || !bodyAllowed(w.status), known:
	case !w.http11:
		w.close = true
	case coding == "identity":
		w.close, length = true, false
	default:
		w.chunked, length = true, false
		if coding != "" && coding != "chunked" {
			b = appendLines(b, "Transfer-Encoding", w.head.coding)
		}
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	}
	if length {
		b = append(b, "Content-Length: "...)
		b = append(strconv.AppendInt(b, w.length, 10), "\r\n"...)
	}
	return b
}

func (w *response) appendConnection(b []byte, connection string) []byte {
	h := &w.head
	if w.close && !h.switching && (w.c.s.stopping.Load() || !hasToken(first(h.connection), "close")) {
		h.connection = nil
		if w.http11 {
			connection = "close"
		}
	}
	b = appendLines(b, "Connection", h.connection)
	if connection != "" {
		b = appendLine(b, "Connection", connection)
	}
	return b
}

func (w *response) appendStatus(b []byte, status int) []byte {
	version := "HTTP/1.0 "
	if w.http11 {
		version = "HTTP/1.1 "
	}
	b = strconv.AppendInt(append(b, version...), int64(status), 10)
	b = append(b, ' ')
	if text := http.StatusText(status); text != "" {
		b = append(b, text...)
	} else {
		b = strconv.AppendInt(append(b, "status code "...), int64(status), 10)
	}
	return append(b, "\r\n"...)
}

// appendInformational appends a head that another one follows.
func (w *response) appendInformational(b []byte, status int) []byte {
	b = w.appendStatus(b, status)
	for name, values := range w.c.header {
		if name != "Content-Length" && name != "Transfer-Encoding" {
			b = appendLines(b, name, values)
		}
	}
	return append(b, "\r\n"...)
}

// announce notes the names of trailers.
func (w *response) announce(lines []string) {
	for _, line := range lines {
		for name := range strings.SplitSeq(line, ",") {
			name = http.CanonicalHeaderKey(strings.Trim(name, " \t"))
			if name != "" && !strings.HasPrefix(name, "If-") && !noTrailer(name) {
				w.trailers = append(w.trailers, name)
			}
		}
	}
}

// noTrailer reports whether a header would come too late, or would frame or route
// the message, in a trailer (RFC 9110, section 6.5.1).
func noTrailer(name string) bool {
	switch name {
	case "Authorization", "Cache-Control", "Connection", "Content-Encoding", "Content-Length", "Content-Range",
		"Content-Type", "Expect", "Host", "Keep-Alive", "Max-Forwards", "Pragma", "Proxy-Authenticate",
		"Proxy-Authorization", "Proxy-Connection", "Range", "Realm", "Te", "Trailer", "Transfer-Encoding",
		"Www-Authenticate":
		return true
	}
	return false
}

// appendLastChunk ends a chunked body.
func (w *response) appendLastChunk() {
	b := append(w.c.wire, "0\r\n"...)
	for name, values := range w.c.header {
		if name, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			b = appendLines(b, name, values)
		}
	}
	for _, name := range w.trailers {
		b = appendLines(b, name, w.c.header[name])
	}
	w.c.wire = append(b, "\r\n"...)
}

// appendLines appends a header, unless its name is none: it must not become a line
// that means something else.
func appendLines(b []byte, name string, values []string) []byte {
	if len(values) == 0 || !validName(name) {
		return b
	}
	for _, v := range values {
		b = appendLine(b, name, v)
	}
	return b
}

func appendLine(b []byte, name, value string) []byte {
	b = append(append(b, name...), ": "...)
	return append(append(b, oneLine(value)...), "\r\n"...)
}

// now returns the time for a Date.
func (c *conn) now() []byte {
	if now := time.Now(); now.Unix() != c.dateSec {
		c.dateSec = now.Unix()
		now.UTC().AppendFormat(c.date[:0], http.TimeFormat)
	}
	return c.date[:]
}

// bodyAllowed reports whether a response of that status can have a body.
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
