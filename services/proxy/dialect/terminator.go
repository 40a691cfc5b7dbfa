// SPDX-License-Identifier: Apache-2.0

package dialect

import (
	"bytes"
	"mime"
)

// Terminator watches a stream for the mark that alone proves that it is whole: a
// cut stream often ends as cleanly as a whole one (DEC-142), and after an error
// the mark proves nothing (DEC-50). It reads no content: a mark stands outside
// every JSON string, because quotes and line ends inside one are escaped.
type Terminator struct {
	marks  [][]byte
	faults [][]byte // of errors in the stream
	tail   []byte   // the end of what was seen, for a mark across two reads
	seen   bool
	failed bool // a fault came first
}

// overlap is longer than any mark.
const overlap = 48

// NewTerminator returns the watch for a response of that content type on that
// path, or nil for one that needs no terminator.
func NewTerminator(contentType, path string) *Terminator {
	kind, _, _ := mime.ParseMediaType(contentType)
	switch kind {
	case "application/x-ndjson":
		return &Terminator{marks: [][]byte{[]byte(`"done":true`), []byte(`"done": true`)}}
	case "text/event-stream":
		return &Terminator{marks: eventMarks(path), faults: eventFaults, tail: []byte{'\n'}} // the first line counts as behind one
	}
	return nil
}

func eventMarks(path string) [][]byte {
	switch path {
	case "/v1/messages":
		return [][]byte{[]byte("\nevent: message_stop"), []byte("\nevent:message_stop")}
	case "/v1/responses":
		return [][]byte{
			[]byte("\nevent: response.completed"), []byte("\nevent: response.incomplete"), []byte("\nevent: response.failed"),
			[]byte("\nevent:response.completed"), []byte("\nevent:response.incomplete"), []byte("\nevent:response.failed"),
			[]byte(`"type":"response.completed"`), []byte(`"type":"response.incomplete"`), []byte(`"type":"response.failed"`),
		}
	case "/api/v1/chat":
		return [][]byte{[]byte("\nevent: chat.end"), []byte("\nevent:chat.end")}
	}
	return [][]byte{[]byte("\ndata: [DONE]"), []byte("\ndata:[DONE]")}
}

// eventFaults are the beginnings of an error in an event stream (engines send it
// with status 200).
var eventFaults = [][]byte{
	[]byte("\ndata: {\"error\":"), []byte("\ndata:{\"error\":"), []byte("\nevent: error"), []byte("\nevent:error"),
}

// Write looks at the next bytes of the stream.
func (t *Terminator) Write(b []byte) {
	if t == nil || t.seen || t.failed {
		return
	}
	t.tail = append(t.tail, b[:min(len(b), overlap)]...)
	t.failed = t.holds(b, t.faults)
	t.seen = !t.failed && t.holds(b, t.marks)
	if len(b) >= overlap {
		t.tail = append(t.tail[:0], b[len(b)-overlap:]...)
	} else if n := len(t.tail) - overlap; n > 0 {
		t.tail = append(t.tail[:0], t.tail[n:]...)
	}
}

// holds reports whether one of the marks is in b, or begins before it.
func (t *Terminator) holds(b []byte, marks [][]byte) bool {
	for _, m := range marks {
		if bytes.Contains(t.tail, m) || bytes.Contains(b, m) {
			return true
		}
	}
	return false
}

// Seen reports whether the mark is there; never for a nil watch.
func (t *Terminator) Seen() bool { return t != nil && t.seen }

// Whole reports whether the stream has ended properly; a nil watch has nothing
// to miss.
func (t *Terminator) Whole() bool { return t == nil || t.seen }
