// SPDX-License-Identifier: Apache-2.0

package dialect

import (
	"bytes"
	"mime"
)

// Terminator watches a stream for the mark that alone proves that it is whole: a
// cut stream often ends as cleanly as a whole one (DEC-142), and after an error
// the mark proves nothing (DEC-50). It keeps no content.
type Terminator struct {
	watch  watch
	seen   bool
	failed bool // an error came first
}

// watch looks at the next bytes of a stream. It stops at the first mark or error.
type watch interface {
	write(b []byte) (mark, fault bool)
}

// NewTerminator returns the watch for a response of that content type on that
// path, or nil for one that needs no terminator.
func NewTerminator(contentType, path string) *Terminator {
	kind, _, _ := mime.ParseMediaType(contentType)
	switch kind {
	case "application/x-ndjson":
		return &Terminator{watch: newDoneWatch()}
	case "text/event-stream":
		return &Terminator{watch: &eventWatch{marks: eventMarks(path), within: eventTypes(path)}}
	}
	return nil
}

// Write looks at the next bytes of the stream.
func (t *Terminator) Write(b []byte) {
	if t == nil || t.seen || t.failed {
		return
	}
	t.seen, t.failed = t.watch.write(b)
}

// Seen reports whether the mark is there; never for a nil watch.
func (t *Terminator) Seen() bool { return t != nil && t.seen }

// Whole reports whether the stream has ended properly; a nil watch has nothing
// to miss.
func (t *Terminator) Whole() bool { return t == nil || t.seen }

// eventWatch looks at the beginnings of the lines of an event stream.
type eventWatch struct {
	marks  []string // beginnings that end the stream properly
	within []string // the same, anywhere in the head of a line
	head   []byte   // of the line that has begun
}

// lineHead is longer than any mark and what stands before it.
const lineHead = 96

// eventMarks are the last events of each dialect, blanks left out.
func eventMarks(path string) []string {
	switch path {
	case "/v1/messages":
		return []string{"event:message_stop"}
	case "/v1/responses":
		return []string{"event:response.completed", "event:response.incomplete", "event:response.failed"}
	case "/api/v1/chat":
		return []string{"event:chat.end"}
	}
	return []string{"data:[DONE]"}
}

// eventTypes are the same events where an engine leaves their names out. Quotes
// inside a text are escaped, so none of its words is taken for one.
func eventTypes(path string) []string {
	if path != "/v1/responses" {
		return nil
	}
	return []string{`"type":"response.completed"`, `"type":"response.incomplete"`, `"type":"response.failed"`}
}

// eventFaults are how an error in an event stream begins (engines send it with
// status 200).
var eventFaults = [...]string{`data:{"error":`, "event:error"}

func (w *eventWatch) write(b []byte) (mark, fault bool) {
	for len(b) > 0 {
		line, rest, ended := bytes.Cut(b, []byte{'\n'})
		if room := lineHead - len(w.head); room > 0 && len(line) > 0 {
			w.head = append(w.head, line[:min(len(line), room)]...)
			if mark, fault = w.judge(); mark || fault {
				return mark, fault
			}
		}
		if ended {
			w.head = w.head[:0]
		}
		b = rest
	}
	return false, false
}

// judge looks at the head of a line, whose first blank behind the colon counts for
// nothing (the event stream's rule).
func (w *eventWatch) judge() (mark, fault bool) {
	for _, f := range eventFaults {
		if begins(w.head, f) {
			return false, true
		}
	}
	for _, m := range w.marks {
		if begins(w.head, m) {
			return true, false
		}
	}
	for _, m := range w.within {
		if bytes.Contains(w.head, []byte(m)) { // the compiler makes no copy of it
			return true, false
		}
	}
	return false, false
}

// begins reports whether a line begins with a field, with or without the blank.
func begins(line []byte, field string) bool {
	colon := bytes.IndexByte(line, ':') + 1
	if colon == 0 || len(field) < colon || string(line[:colon]) != field[:colon] {
		return false
	}
	value := bytes.TrimPrefix(line[colon:], []byte{' '})
	return len(value) >= len(field)-colon && string(value[:len(field)-colon]) == field[colon:]
}

// doneWatch looks for the member "done":true of an object of its own line; one
// inside another object is content.
type doneWatch struct {
	depth   int
	text    bool // inside a string
	escaped bool // behind a backslash in it
	name    int  // bytes of doneMember that match, at depth 1; noMatch after a difference
	value   int  // bytes of doneValue that match, behind the member's colon; noMatch elsewhere
}

const (
	doneMember = `done`
	doneValue  = `true`
	noMatch    = -1
)

func newDoneWatch() *doneWatch { return &doneWatch{name: noMatch, value: noMatch} }

func (w *doneWatch) write(b []byte) (mark, fault bool) {
	for _, c := range b {
		switch {
		case c == '\n':
			*w = *newDoneWatch()
		case w.text:
			w.inText(c)
		default:
			if w.outside(c) {
				return true, false
			}
		}
	}
	return false, false
}

func (w *doneWatch) inText(c byte) {
	switch {
	case w.escaped:
		w.escaped = false
	case c == '\\':
		w.escaped, w.name = true, noMatch
	case c == '"':
		w.text = false
	case w.name >= 0 && w.name < len(doneMember) && c == doneMember[w.name]:
		w.name++
	default:
		w.name = noMatch
	}
}

// outside takes a byte outside strings and reports whether it completes the mark.
func (w *doneWatch) outside(c byte) bool {
	switch c {
	case '"':
		w.text, w.value, w.name = true, noMatch, noMatch
		if w.depth == 1 {
			w.name = 0
		}
	case ':':
		w.value = noMatch
		if w.name == len(doneMember) {
			w.value = 0
		}
		w.name = noMatch
	case ' ', '\t', '\r':
	case '{', '[':
		w.depth++
		w.value = noMatch
	case '}', ']':
		w.depth--
		w.value = noMatch
	default:
		if w.value >= 0 && w.value < len(doneValue) && c == doneValue[w.value] {
			w.value++
			return w.value == len(doneValue)
		}
		w.value = noMatch
	}
	return false
}
