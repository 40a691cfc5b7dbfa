// SPDX-License-Identifier: Apache-2.0

package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"unicode/utf8"
	"unsafe"

	"github.com/tidwall/gjson"

	"nvpair/internal/jsoncheck"
)

var (
	errNotObject  = errors.New("not a JSON object")
	errNotUTF8    = errors.New("not UTF-8")
	errTooDeep    = errors.New("nested too deeply")
	errVersion    = errors.New(`no "jsonrpc":"2.0"`)
	errMethodType = errors.New("method is not a string")
	errErrorType  = errors.New("error is not an object")
)

// Frame is one parsed line. Raw members are slices of the line, byte for byte;
// a nil member was absent. An id of null counts as absent (WR-9).
type Frame struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  json.RawMessage

	hasMethod bool // a method member is there, whatever its value
	hasError  bool // likewise
}

// invalidRequest reports whether a frame that did not parse deserves a -32600:
// it has an id to answer to and looks like a request (DEC-46, DEC-123).
func (f *Frame) invalidRequest() bool {
	return f.ID != nil && f.hasMethod && f.Result == nil && !f.hasError
}

// parseFrame reads the envelope of one line. On error the members that were
// readable are set all the same. The frame shares the line's memory.
func parseFrame(line []byte) (Frame, error) {
	var f Frame
	line = bytes.Trim(line, " \t\r")
	if len(line) == 0 || line[0] != '{' {
		return f, errNotObject
	}
	if !utf8.Valid(line) {
		return f, errNotUTF8
	}
	if jsoncheck.TooDeep(line) {
		return f, errTooDeep
	}
	if !gjson.ValidBytes(line) {
		return f, errNotObject
	}
	return f, f.scan(line)
}

// scan sets the members from a valid JSON object. Of a repeated member the last
// one counts.
func (f *Frame) scan(line []byte) error {
	var version string
	var badMethod, badError bool // as of the last one, too
	// gjson works on strings. The line is never written to again, so it may
	// be looked at as one without a copy; raw turns the pieces back.
	text := unsafe.String(unsafe.SliceData(line), len(line))
	gjson.Parse(text).ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "jsonrpc":
			version = ""
			if value.Type == gjson.String {
				version = value.Str
			}
		case "id":
			f.ID = nil
			if value.Type != gjson.Null {
				f.ID = raw(value)
			}
		case "method":
			f.hasMethod, f.Method = true, value.Str
			badMethod = value.Type != gjson.String
		case "params":
			f.Params = raw(value)
		case "result":
			f.Result = raw(value)
		case "error":
			f.hasError, f.Error = true, nil
			if value.IsObject() {
				f.Error = raw(value)
			}
			badError = f.Error == nil && value.Type != gjson.Null
		}
		return true
	})
	switch {
	case badMethod:
		return errMethodType
	case badError:
		return errErrorType
	case version != "2.0":
		return errVersion
	}
	return nil
}

func raw(v gjson.Result) json.RawMessage {
	return unsafe.Slice(unsafe.StringData(v.Raw), len(v.Raw))
}

// appendRequest adds a request, or with a nil id a notification, and its newline.
func appendRequest(b []byte, id []byte, method string, params json.RawMessage) []byte {
	b = append(b, `{"jsonrpc":"2.0"`...)
	if id != nil {
		b = append(b, `,"id":`...)
		b = append(b, id...)
	}
	b = append(b, `,"method":`...)
	b = AppendString(b, method)
	if params != nil {
		b = append(b, `,"params":`...)
		b = appendRaw(b, params)
	}
	return append(b, '}', '\n')
}

// appendResponse adds a response and its newline; member is "result" or "error".
func appendResponse(b []byte, id json.RawMessage, member string, value json.RawMessage) []byte {
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = append(b, id...)
	b = append(b, `,"`...)
	b = append(b, member...)
	b = append(b, `":`...)
	b = appendRaw(b, value)
	return append(b, '}', '\n')
}

// appendRaw adds a value that some caller encoded. None is null (WR-12), and a
// newline, which JSON has between tokens only, becomes a blank: a frame is one
// line whatever it carries (WR-5).
func appendRaw(b []byte, value json.RawMessage) []byte {
	if len(value) == 0 {
		return append(b, "null"...)
	}
	b = append(b, value...)
	for rest := b[len(b)-len(value):]; ; {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			return b
		}
		rest[i] = ' '
		rest = rest[i+1:]
	}
}

// AppendString adds s as a JSON string, as Marshal writes it. Plain ASCII, which
// names and ids nearly always are, needs no encoder.
func AppendString(b []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if s[i] < 0x20 || s[i] >= utf8.RuneSelf || s[i] == '"' || s[i] == '\\' {
			quoted, _ := Marshal(s) // a string always encodes
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// Marshal is encoding/json without HTML escaping, so that text does not grow
// six-fold on the way (DEC-94). A json.RawMessage is returned as it is; any
// other result holds no newline.
func Marshal(v any) (json.RawMessage, error) {
	if r, ok := v.(json.RawMessage); ok {
		return r, nil
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte{'\n'}), nil
}
