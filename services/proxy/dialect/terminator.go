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
	watch watch
	seen  bool
}

// watch looks at the next bytes of a stream and reports whether the mark is there.
// After an error it never is.
type watch interface {
	write(b []byte) bool
	// ended reports the same at the end of the stream, whose last line need not
	// have an end.
	ended() bool
}

// NewTerminator returns the watch for a response of that content type on that
// path, or nil for one that needs no terminator.
func NewTerminator(contentType, path string) *Terminator {
	kind, _, _ := mime.ParseMediaType(contentType)
	switch kind {
	case "application/x-ndjson":
		return &Terminator{watch: &lineWatch{object: newMembers(lastLine)}}
	case "text/event-stream":
		return &Terminator{watch: newEventWatch(path)}
	}
	return nil
}

// Write looks at the next bytes of the stream.
func (t *Terminator) Write(b []byte) {
	if t != nil && !t.seen {
		t.seen = t.watch.write(b)
	}
}

// Seen reports whether the mark is there; never for a nil watch.
func (t *Terminator) Seen() bool { return t != nil && t.seen }

// Whole reports whether the stream has ended properly; a nil watch has nothing
// to miss.
func (t *Terminator) Whole() bool { return t == nil || t.seen || t.watch.ended() }

// verdict is what a member of an object says about its stream.
type verdict int

const (
	nothing verdict = iota
	mark            // with this object the stream is whole
	fault           // an error: no mark counts any more
)

// lastLine judges the lines of Ollama's streams.
func lastLine(key, value []byte) verdict {
	switch {
	case string(key) == "done" && string(value) == "true":
		return mark
	case string(key) == "error" && string(value) != "null":
		return fault
	}
	return nothing
}

// What a line must hold to be worth reading.
var (
	trueLiteral = []byte(`true`)
	errorName   = []byte(`"error"`)
	dataObject  = []byte(`data: {`)
)

// lineWatch watches a stream of one object a line.
type lineWatch struct {
	object *members
	failed bool
}

func (w *lineWatch) write(b []byte) bool {
	for len(b) > 0 && !w.failed {
		line, rest, ended := bytes.Cut(b, []byte{'\n'})
		if ended && !w.object.began && !bytes.Contains(line, trueLiteral) && !bytes.Contains(line, errorName) {
			b = rest // most lines come whole and say neither
			continue
		}
		w.object.write(line)
		if w.failed = w.object.verdict == fault; w.failed {
			return false
		}
		if w.object.whole() && w.object.verdict == mark {
			return true
		}
		if ended {
			w.object.reset()
		}
		b = rest
	}
	return false
}

func (w *lineWatch) ended() bool { return false } // a whole object was seen when it came

// eventWatch watches an event stream. The mark is a line of data of its own, or an
// object in one, named by its own type or by its event.
type eventWatch struct {
	end    string // a whole line of data, "" for none
	types  []string
	object *members // of the line of data that has begun
	line   []byte   // the head of the line that has begun, without its data
	inData bool     // what follows on the line goes to object
	named  bool     // the event that has begun bears one of types as its name
	failed bool
}

// maxLineHead is longer than any name and mark.
const maxLineHead = 64

func newEventWatch(path string) *eventWatch {
	w := &eventWatch{}
	switch path {
	case "/v1/messages":
		w.types = []string{"message_stop"}
	case PathResponses:
		w.types = []string{"response.completed", "response.incomplete", "response.failed"}
	case "/api/v1/chat":
		w.types = []string{"chat.end"}
	default:
		w.end = "[DONE]"
	}
	w.object = newMembers(w.judge)
	return w
}

func (w *eventWatch) judge(key, value []byte) verdict {
	switch string(key) {
	case "error":
		if string(value) != "null" {
			return fault
		}
	case "type":
		name, isText := bytes.CutPrefix(value, []byte{'"'})
		switch {
		case isText && string(name) == "error":
			return fault
		case isText && w.isType(name):
			return mark
		}
	}
	return nothing
}

func (w *eventWatch) isType(name []byte) bool {
	for _, t := range w.types {
		if t == string(name) {
			return true
		}
	}
	return false
}

func (w *eventWatch) write(b []byte) bool {
	for len(b) > 0 && !w.failed {
		line, rest, ended := bytes.Cut(b, []byte{'\n'})
		if ended && w.end != "" && len(w.line) == 0 && bytes.HasPrefix(line, dataObject) && !bytes.Contains(line, errorName) {
			b = rest // most lines come whole and hold no error
			continue
		}
		if w.part(line) {
			return true
		}
		if ended && w.endLine() {
			return true
		}
		b = rest
	}
	return false
}

// part takes a part of a line.
func (w *eventWatch) part(b []byte) bool {
	if !w.inData {
		if b = w.head(b); !w.inData {
			return false
		}
	}
	w.object.write(b)
	if w.object.verdict == fault {
		w.failed = true
		return false
	}
	return w.object.whole() && (w.object.verdict == mark || w.named)
}

// head takes bytes of a line until it shows that it is data and an object, and
// returns the rest.
func (w *eventWatch) head(b []byte) []byte {
	for len(b) > 0 && len(w.line) < maxLineHead {
		if b[0] == '{' && (string(w.line) == "data:" || string(w.line) == "data: ") {
			w.inData = true
			return b
		}
		w.line = append(w.line, b[0])
		b = b[1:]
	}
	return nil
}

// endLine takes the end of a line.
func (w *eventWatch) endLine() bool {
	line := bytes.TrimSuffix(w.line, []byte{'\r'})
	isEnd := w.isEnd(line)
	if name, isEvent := bytes.CutPrefix(line, []byte("event:")); isEvent {
		name = bytes.TrimPrefix(name, []byte{' '})
		w.named, w.failed = w.isType(name), w.failed || string(name) == "error"
	} else if len(line) == 0 {
		w.named = false // the event ends
	}
	w.line, w.inData = w.line[:0], false
	w.object.reset()
	return isEnd && !w.failed
}

// isEnd reports whether a line is the one that ends the stream.
func (w *eventWatch) isEnd(line []byte) bool {
	data, isData := bytes.CutPrefix(line, []byte("data:"))
	return isData && w.end != "" && string(bytes.TrimPrefix(data, []byte{' '})) == w.end
}

func (w *eventWatch) ended() bool {
	return !w.failed && !w.inData && w.isEnd(bytes.TrimSuffix(w.line, []byte{'\r'}))
}
