// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"strconv"
)

// scan reads an object as our own processes write it: names once, texts of plain
// ASCII, whole numbers and nulls, no blanks. ok is false for any other, which is
// for Parse to judge. Every step of every job is read this way, so it allocates
// for the texts alone.
func scan(raw []byte) (i Info, ok bool) {
	var seen uint16 // members that were there, as bits
	for rest := raw; ; {
		if len(rest) < 2 || rest[0] != '{' && (seen == 0 || rest[0] != ',') {
			return Info{}, false
		}
		name, value, after, ok := scanMember(rest[1:])
		if !ok {
			return Info{}, false
		}
		bit := i.setScanned(name, value)
		if bit == 0 || seen&bit != 0 {
			return Info{}, false
		}
		seen |= bit
		if len(after) == 1 && after[0] == '}' {
			return i, true
		}
		if len(after) == 0 || after[0] != ',' {
			return Info{}, false
		}
		rest = after
	}
}

// scanMember reads "name":value. value keeps its quotes.
func scanMember(b []byte) (name, value, after []byte, ok bool) {
	quoted, after, ok := scanText(b)
	if !ok || len(after) < 2 || after[0] != ':' {
		return nil, nil, nil, false
	}
	name, b = quoted[1:len(quoted)-1], after[1:]
	if b[0] == '"' {
		value, after, ok = scanText(b)
		return name, value, after, ok
	}
	end := bytes.IndexAny(b, ",}")
	if end < 1 {
		return nil, nil, nil, false
	}
	return name, b[:end], b[end:], true
}

// scanText reads a string without escapes.
func scanText(b []byte) (text, after []byte, ok bool) {
	if len(b) == 0 || b[0] != '"' {
		return nil, nil, false
	}
	for n := 1; n < len(b); n++ {
		switch c := b[n]; {
		case c == '"':
			return b[:n+1], b[n+1:], true
		case c < 0x20 || c >= 0x7f || c == '\\':
			return nil, nil, false
		}
	}
	return nil, nil, false
}

// setScanned sets a member and returns its bit, 0 for one that is not known or
// whose value is not of its type.
func (i *Info) setScanned(name, value []byte) (bit uint16) {
	switch string(name) {
	case "id":
		return setText(&i.ID, value, 1<<0)
	case "model":
		return setText(&i.Model, value, 1<<1)
	case "engine":
		return setText(&i.Engine, value, 1<<2)
	case "runId":
		return setText(&i.RunID, value, 1<<3)
	case "state":
		return setText(&i.State, value, 1<<4)
	case "originatedFrom":
		return setText(&i.OriginatedFrom, value, 1<<5)
	case "scheduledOn":
		return setText(&i.ScheduledOn, value, 1<<6)
	case "createdAt":
		return setNumber(&i.CreatedMillis, value, 1<<7)
	case "seq":
		return setNumber(&i.Seq, value, 1<<8)
	case "startedAt":
		return setOptional(&i.StartedMillis, value, setNumber, 1<<9)
	case "completedAt":
		return setOptional(&i.CompletedMillis, value, setNumber, 1<<10)
	case "error":
		return setOptional(&i.Error, value, setText, 1<<11)
	case "requesterId":
		return setOptional(&i.RequesterID, value, setText, 1<<12)
	}
	return 0
}

func setText(into *string, value []byte, bit uint16) uint16 {
	if value[0] != '"' {
		return 0
	}
	*into = string(value[1 : len(value)-1])
	return bit
}

func setNumber(into *int64, value []byte, bit uint16) uint16 {
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil || value[0] == '+' || len(value) > 1 && (value[0] == '0' || value[0] == '-') {
		return 0
	}
	*into = n
	return bit
}

func setOptional[T any](into **T, value []byte, set func(*T, []byte, uint16) uint16, bit uint16) uint16 {
	if string(value) == "null" {
		return bit
	}
	*into = new(T)
	return set(*into, value, bit)
}
