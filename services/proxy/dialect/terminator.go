// SPDX-License-Identifier: Apache-2.0

package dialect

import (
	"bytes"
	"mime"
)

// Terminator watches a stream for the mark that alone proves that it is whole: a
// cut stream often ends as cleanly as a whole one (DEC-142). It reads no
// content: a mark stands outside every JSON string, because quotes and line ends
// inside one are escaped.
type Terminator struct {
	marks [][]byte
	tail  []byte // the end of what was seen, for a mark across two reads
	seen  bool
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
		return &Terminator{marks: eventMarks(path), tail: []byte{'\n'}} // the first line counts as behind one
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
			[]byte(`"type":"response.completed"`), []byte(`"type":"response.incomplete"`), []byte(`"type":"response.failed"`),
		}
	case "/api/v1/chat":
		return [][]byte{[]byte("\nevent: chat.end")}
	}
	return [][]byte{[]byte("\ndata: [DONE]"), []byte("\ndata:[DONE]")}
}

// Write looks at the next bytes of the stream.
func (t *Terminator) Write(b []byte) {
	if t == nil || t.seen {
		return
	}
	t.tail = append(t.tail, b[:min(len(b), overlap)]...)
	for _, m := range t.marks {
		if bytes.Contains(t.tail, m) || bytes.Contains(b, m) {
			t.seen = true
		}
	}
	if len(b) >= overlap {
		t.tail = append(t.tail[:0], b[len(b)-overlap:]...)
	} else if n := len(t.tail) - overlap; n > 0 {
		t.tail = append(t.tail[:0], t.tail[n:]...)
	}
}

// Whole reports whether the stream has ended properly; a nil watch has nothing
// to miss.
func (t *Terminator) Whole() bool { return t == nil || t.seen }
