// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// opening is how every answer begins, and filler how it goes on, round and
// round. No token holds a character that JSON escapes; some hold characters of
// several bytes, which a stream may be cut inside.
var (
	opening = []string{"[demo", " engine,", " no", " model]", " Request", " "}
	filler  = []string{".", " This", " text", " was", " not", " generated", " by", " a", " model:", " a", " stand-in",
		" for", " an", " engine", " repeats", " it", " –", " größer", " 日本", " geht", " nicht"}
)

// pad is what tokens are padded with.
var pad = func() (b [4096]byte) {
	for i := range b {
		b[i] = "demo "[i%5]
	}
	return b
}()

// seed is what makes answers differ: the hash of the request's body.
type seed [8]byte

func (x *exchange) seed() seed { return seed(x.reader.hash.sum[:8]) }

// number returns a number below n.
func (s seed) number(n uint64) uint64 { return binary.BigEndian.Uint64(s[:]) % n }

// appendHex appends n hex digits, at most 16.
func (s seed) appendHex(b []byte, n int) []byte {
	var digits [16]byte
	hex.Encode(digits[:], s[:])
	return append(b, digits[:n]...)
}

// appendToken appends token i of an answer of n.
func (g *generation) appendToken(b []byte, i int) []byte {
	start := len(b)
	switch {
	case i < len(opening):
		b = append(b, opening[i]...)
		if i == len(opening)-1 {
			b = g.seed.appendHex(b, 8)
		}
	default:
		b = append(b, filler[(i-len(opening))%len(filler)]...)
	}
	size := g.pace.ChunkBytes
	if g.long > 0 && i == 0 {
		size = g.long
	}
	for missing := size - (len(b) - start); missing > 0; missing = size - (len(b) - start) {
		b = append(b, pad[:min(missing, len(pad))]...)
	}
	return b
}

// appendText appends the whole answer.
func (g *generation) appendText(b []byte) []byte {
	for i := range g.n {
		b = g.appendToken(b, i)
	}
	return b
}

// appendString appends a JSON string.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			quoted, _ := json.Marshal(s) // a string always has a JSON form
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// quoted is appendString as a string.
func quoted(s string) string { return string(appendString(nil, s)) }

// add appends its arguments: strings as they are, numbers in decimal digits.
func (x *exchange) add(parts ...string) {
	for _, p := range parts {
		x.buf = append(x.buf, p...)
	}
}

// num appends a number.
func (x *exchange) num(n int) { x.buf = strconv.AppendInt(x.buf, int64(n), 10) }
