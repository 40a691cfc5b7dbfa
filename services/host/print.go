// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Everything that a command prints for people goes through clean, and every JSON
// through writeJSON: names and texts come from other machines and programs, and
// must not steer the terminal that shows them.

// Bounds of what one text takes of a screen, in characters.
const (
	maxCell = 64  // in a column; the longest names of models are shorter
	maxText = 400 // at the end of a row

	maxSentence = 1000 // of a message
)

// clean makes what could move the cursor, change the direction of the writing or
// hide something a visible mark, and any blank a space.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsPrint(r):
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// sentence is a message of one line.
func sentence(text string) string { return cut(clean(text), maxSentence) }

// cell is a text as it stands in a column.
func cell(text string) string { return cut(clean(text), maxCell) }

// cut shortens what is longer than that many characters, visibly.
func cut(text string, limit int) string {
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	return string([]rune(text)[:limit-1]) + "…"
}

// line joins the cells of a row.
func line(gap string, cells ...string) string {
	for i, c := range cells {
		if i == len(cells)-1 {
			cells[i] = cut(clean(c), maxText)
		} else {
			cells[i] = cell(c)
		}
	}
	return strings.Join(cells, gap)
}

// table prints rows in columns, once it is flushed.
type table struct{ w *tabwriter.Writer }

func newTable(out io.Writer) table { return table{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)} }

func (t table) row(cells ...string) { fmt.Fprintln(t.w, line("\t", cells...)) }

func (t table) flush() { _ = t.w.Flush() }

// printJSON prints a value of ours as one line of JSON.
func printJSON(out io.Writer, v any) {
	if raw, err := json.Marshal(v); err == nil { // our own types always encode
		writeJSON(out, raw)
	}
}

// writeJSON prints JSON as a line. What a terminal would act on, or not show,
// stands in it as \u....; to a program it is the same.
func writeJSON(out io.Writer, raw []byte) {
	b := make([]byte, 0, len(raw)+1)
	for _, r := range string(raw) {
		switch {
		case r < 0x7f || unicode.IsPrint(r):
			b = utf8.AppendRune(b, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
	}
	_, _ = out.Write(append(b, '\n'))
}
