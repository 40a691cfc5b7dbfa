// SPDX-License-Identifier: Apache-2.0

package applog

import (
	"fmt"
	"log/slog"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"
)

// appendAttr appends " key=value", or nothing for an empty attribute or group.
// A group becomes its members, each with the group's name and a dot before its
// key; a group without a name lends its members none.
func appendAttr(b []byte, prefix string, a slog.Attr) []byte {
	v := a.Value.Resolve()
	if a.Key == "" && v.Equal(slog.Value{}) {
		return b
	}
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, member := range v.Group() {
			b = appendAttr(b, prefix, member)
		}
		return b
	}
	b = append(b, ' ')
	b = appendQuoted(b, prefix+a.Key) // a key from outside could hold a line break as well
	b = append(b, '=')
	return appendValue(b, v)
}

// appendValue appends a resolved value that is no group (WR-47).
func appendValue(b []byte, v slog.Value) []byte {
	switch v.Kind() {
	case slog.KindInt64:
		return strconv.AppendInt(b, v.Int64(), 10)
	case slog.KindUint64:
		return strconv.AppendUint(b, v.Uint64(), 10)
	case slog.KindFloat64:
		return strconv.AppendFloat(b, v.Float64(), 'g', -1, 64)
	case slog.KindBool:
		return strconv.AppendBool(b, v.Bool())
	case slog.KindDuration:
		return append(b, v.Duration().String()...)
	case slog.KindTime:
		return v.Time().AppendFormat(b, time.RFC3339Nano)
	case slog.KindString:
		return appendQuoted(b, v.String())
	}
	// fmt calls Error and String, and survives those of a nil pointer. An error
	// gets no %+v, with which some libraries print a stack.
	if err, ok := v.Any().(error); ok {
		return appendQuoted(b, fmt.Sprint(err))
	}
	return appendQuoted(b, fmt.Sprintf("%+v", v.Any()))
}

// appendQuoted appends s bare, or in Go's quotes if a reader could not tell
// where a bare s ends.
func appendQuoted(b []byte, s string) []byte {
	if !needsQuotes(s) {
		return append(b, s...)
	}
	return strconv.AppendQuote(b, s)
}

// needsQuotes is the condition of WR-47, to the letter.
func needsQuotes(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c == '"' || c == '=' {
			return true
		}
	}
	return s == ""
}

// appendText appends s without quotes, as WR-46 wants the message, but with
// everything that does not print escaped: a message must not start a second
// line or command the terminal. Backslashes stay single, for the sake of
// Windows paths; so unlike a value a message cannot always be read back.
func appendText(b []byte, s string) []byte {
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			b = fmt.Appendf(b, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			b = append(b, s[i:i+size]...)
		default:
			q := strconv.QuoteRune(r)
			b = append(b, q[1:len(q)-1]...)
		}
		i += size
	}
	return b
}
