// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"strings"
)

// validHost reports whether s consists of what a Host may (RFC 3986, section 3.2).
func validHost(s string) bool {
	for i := range len(s) {
		if !alphanumeric(s[i]) && strings.IndexByte("!$%&()*+,-.:;=['\\]_~", s[i]) < 0 || s[i] == '\\' {
			return false
		}
	}
	return true
}

// validName reports whether s is a token (RFC 9110, section 5.6.2).
func validName(s string) bool {
	for i := range len(s) {
		if !alphanumeric(s[i]) && strings.IndexByte("!#$%&'*+-.^_`|~", s[i]) < 0 {
			return false
		}
	}
	return s != ""
}

// validValue reports whether s has no control character but the tabulator.
func validValue(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' && s[i] != '\t' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

func alphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// hasToken reports whether one of the words of a header's line is the token, in
// any case.
func hasToken(line, token string) bool {
	if len(line) < len(token) {
		return false
	}
	for word := range strings.FieldsFuncSeq(line, func(c rune) bool { return c == ' ' || c == ',' || c == '\t' }) {
		if strings.EqualFold(word, token) {
			return true
		}
	}
	return false
}

// first returns the first of a header's values.
func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// oneLine returns a header's value without what would end its line.
func oneLine(v string) string {
	if strings.IndexByte(v, '\n') >= 0 || strings.IndexByte(v, '\r') >= 0 {
		v = strings.NewReplacer("\n", " ", "\r", " ").Replace(v)
	}
	return strings.Trim(v, " \t")
}
