// SPDX-License-Identifier: Apache-2.0

// Package jsoncheck tells whether bytes from a stranger are JSON, with a bound on
// their nesting: validation is recursive, and a text of nothing but brackets must
// not exhaust the stack, which no program survives.
package jsoncheck

import (
	"bytes"

	"github.com/tidwall/gjson"
)

// MaxDepth is the deepest nesting that counts as JSON, as in encoding/json.
const MaxDepth = 10_000

// Valid reports whether b is one JSON value of bounded nesting.
func Valid(b []byte) bool { return !TooDeep(b) && gjson.ValidBytes(b) }

// TooDeep reports whether brackets nest beyond MaxDepth. It need not be exact for
// invalid JSON, which a validation refuses anyway.
func TooDeep(b []byte) bool {
	if bytes.Count(b, []byte{'{'})+bytes.Count(b, []byte{'['}) <= MaxDepth {
		return false // nearly every text; counting is many times faster
	}
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i = stringEnd(b, i)
		case '{', '[':
			if depth++; depth > MaxDepth {
				return true
			}
		case '}', ']':
			depth--
		}
	}
	return false
}

// stringEnd returns the index of the quote that ends the string begun at start,
// or len(b).
func stringEnd(b []byte, start int) int {
	for i := start + 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(b)
}
