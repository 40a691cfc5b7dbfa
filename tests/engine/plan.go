// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"net"
	"strings"
	"unicode/utf8"
)

// plan is the faults that hit one request, in the order in which they were added.
type plan []*fault

func (p plan) find(kind Kind) *fault {
	for _, f := range p {
		if f.Kind == kind {
			return f
		}
	}
	return nil
}

// form returns the form of a kind's fault, "" without one.
func (p plan) form(kind Kind) string {
	if f := p.find(kind); f != nil {
		return f.Form
	}
	return ""
}

func (p plan) moments(m Moment) (found plan) {
	for _, f := range p {
		if m != "" && f.moment() == m {
			found = append(found, f)
		}
	}
	return found
}

// at lets the faults of a moment act.
func (x *exchange) at(m Moment) {
	if len(x.plan) == 0 {
		return
	}
	for _, f := range x.plan.moments(m) {
		if m == AtMidStream && x.stream.live && x.stream.events != f.middle(x) {
			continue
		}
		x.act(f)
	}
}

// middle returns after how many events of a stream a fault acts.
func (f *fault) middle(x *exchange) int {
	if f.After > 0 {
		return f.After
	}
	return max(1, x.stream.expected/2)
}

func (x *exchange) act(f *fault) {
	if x.err != nil {
		return
	}
	switch f.Kind {
	case KindSilence:
		x.sleep(f.duration())
	case KindHang:
		x.await(f.cleared, 0)
	case KindGarbage:
		x.wire = x.wire[:0]
		x.write([]byte("\x00\x15\x03 this is no HTTP, says the demo engine \xff\xfe\r\n\r\nzz\r\n"))
		x.cut(f)
	case KindCut, KindReset:
		x.flush()
		x.cut(f)
	}
}

// cut ends the exchange and its connection.
func (x *exchange) cut(f *fault) {
	if x.err == nil {
		x.err, x.fatal = errCut, f
	}
}

// end closes or resets a connection.
func (f *fault) end(nc net.Conn) {
	if tcp, ok := nc.(*net.TCPConn); ok && f.Kind == KindReset {
		_ = tcp.SetLinger(0)
	}
	_ = nc.Close()
}

// answer gives the answer that a fault puts in place of the engine's, if one
// does at this moment.
func (p plan) answer(x *exchange, m Moment) bool {
	inTime := m == AtBody || x.length == 0 // without a body there is nothing to wait for
	for _, f := range p {
		if f.Kind == KindStatus && (f.At == m || inTime) {
			x.answerStatus(f)
			return true
		}
		if inTime && f.Kind == KindErrorOK {
			x.fail(failure{status: 200, message: orText(f.Message, "demo engine: the model failed")})
			return true
		}
		if inTime && f.Kind == KindBusy {
			x.fail(failBusy)
			return true
		}
	}
	return false
}

func (x *exchange) answerStatus(f *fault) {
	x.close = x.close || f.Close
	switch {
	case f.Body != nil && *f.Body == "":
		x.empty(f.Status)
	case f.Body != nil:
		x.respond(f.Status, typeJSONUTF8, []byte(*f.Body))
	default:
		x.fail(failure{status: f.Status, message: orText(f.Message, "demo engine: a fault asks for this status")})
	}
}

func orText(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// emitFaulty writes an event of a request that faults hit.
func (x *exchange) emitFaulty(b []byte) {
	switch f := x.plan.find(KindFraming); {
	case f == nil:
		x.chunk(b)
	case f.Form == "bytewise":
		for i := range b {
			x.chunk(b[i : i+1])
		}
	case f.Form == "utf8":
		cut := bytes.IndexFunc(b, func(r rune) bool { return r >= utf8.RuneSelf }) + 1
		x.chunk(b[:cut])
		x.chunk(b[cut:])
	case f.Form == "line":
		x.chunk(b[:len(b)/2])
		x.chunk(b[len(b)/2:])
	case f.Form == "joined":
		x.joint = append(x.joint, b...)
	case f.Form == "no-last-newline":
		text := bytes.TrimRight(b, "\n")
		x.chunk(append(x.joint, text...))
		x.joint = append(x.joint[:0], b[len(text):]...)
	case f.Form == "comment":
		x.chunk([]byte(": a comment of the demo engine\n\n"))
		x.chunk(b)
	case f.Form == "ping":
		ping := ": ping\n\n"
		if strings.HasSuffix(x.path, "/messages") {
			ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n"
		}
		x.chunk([]byte(ping))
		x.chunk(b)
	default:
		x.chunk(b)
	}
}
