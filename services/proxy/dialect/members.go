// SPDX-License-Identifier: Apache-2.0

package dialect

// members reads one JSON object as it comes, in pieces cut anywhere, and shows its
// own members to a judge: literals as they are, texts behind their quote, "{" or "["
// for what holds others. Members of objects inside are content and are not shown. It keeps the
// last key and value only, of at most maxMember bytes.
type members struct {
	judge   func(key, value []byte) verdict // keeps neither
	verdict verdict                         // the first that is not nothing; a fault takes the place of a mark

	depth   int
	began   bool // anything of the object was there
	text    bool // inside a string
	escaped bool // behind a backslash in it
	value   bool // behind the colon of an own member
	key     []byte
	token   []byte // of the string or literal that is read; of a string with its first quote
	literal bool   // token is a literal
}

// maxMember is longer than any name and value that says something.
const maxMember = 32

func newMembers(judge func(key, value []byte) verdict) *members { return &members{judge: judge} }

// whole reports whether the object has been closed.
func (m *members) whole() bool { return m.began && m.depth <= 0 && !m.text }

// reset begins a new object.
func (m *members) reset() {
	*m = members{judge: m.judge, key: m.key[:0], token: m.token[:0]}
}

func (m *members) write(b []byte) {
	for len(b) > 0 {
		switch {
		case m.text:
			b = m.inText(b)
		case m.depth > 1:
			b = m.inContent(b)
		default:
			m.outside(b[0])
			b = b[1:]
		}
	}
}

// inText reads on in a string and returns what is behind it. Those of own members
// only may matter.
func (m *members) inText(b []byte) []byte {
	n := 0
	for n < len(b) && (m.escaped || b[n] != '"') {
		m.escaped = !m.escaped && b[n] == '\\'
		n++
	}
	if room := maxMember + 1 - len(m.token); m.depth == 1 && room > 0 { // one more shows that it is too long
		m.token = append(m.token, b[:min(n, room)]...)
	}
	if n == len(b) {
		return nil
	}
	m.text = false
	if m.depth == 1 {
		m.endText()
	}
	return b[n+1:]
}

// inContent reads on in what an own member holds, up to the next string or its end,
// and returns the rest.
func (m *members) inContent(b []byte) []byte {
	for n, c := range b {
		switch c {
		case '"':
			m.text = true
			return b[n+1:]
		case '{', '[':
			m.depth++
		case '}', ']':
			if m.depth--; m.depth == 1 {
				return b[n+1:]
			}
		}
	}
	return nil
}

func (m *members) endText() {
	if m.value {
		m.show(m.token)
	} else {
		m.key = append(m.key[:0], m.token[1:]...)
	}
}

// outside takes a byte outside strings.
func (m *members) outside(c byte) {
	switch c {
	case '"':
		m.text, m.began = true, true
		if m.depth == 1 {
			m.token = append(m.token[:0], '"')
		}
	case '{', '[':
		if m.value && m.depth == 1 {
			m.token = append(m.token[:0], c)
			m.show(m.token)
		}
		m.began = true
		m.depth++
	case '}', ']':
		m.endLiteral()
		m.depth--
	case ',':
		m.endLiteral()
		m.value = m.value && m.depth != 1
	case ':':
		m.value = m.value || m.depth == 1
		m.token = m.token[:0]
	case ' ', '\t', '\r':
		m.endLiteral()
	default:
		if m.value && m.depth == 1 {
			m.literal = true
			if len(m.token) <= maxMember {
				m.token = append(m.token, c)
			}
		}
	}
}

func (m *members) endLiteral() {
	if m.literal {
		m.show(m.token)
		m.literal, m.token = false, m.token[:0]
	}
}

// show shows the judge a value; that of a string begins with its quote.
func (m *members) show(value []byte) {
	if v := m.judge(m.key, value); v != nothing && m.verdict != fault {
		m.verdict = v
	}
	m.value = false
}
