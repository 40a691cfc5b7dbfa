// SPDX-License-Identifier: Apache-2.0

package jsonrpc

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// modelFrame is parseFrame by means of encoding/json, member by member.
func modelFrame(line []byte) (want members, ok bool) {
	line = bytes.Trim(line, " \t\r")
	var all map[string]json.RawMessage
	if !utf8.Valid(line) || !bytes.HasPrefix(line, []byte{'{'}) || json.Unmarshal(line, &all) != nil {
		return members{}, false
	}
	var version string
	if all["jsonrpc"] == nil || string(all["jsonrpc"]) == "null" || json.Unmarshal(all["jsonrpc"], &version) != nil ||
		version != "2.0" {
		return members{}, false
	}
	if method := all["method"]; method != nil && (method[0] != '"' || json.Unmarshal(method, &want.method) != nil) {
		return members{}, false
	}
	if id := string(all["id"]); id != "null" {
		want.id = id
	}
	if e := string(all["error"]); e != "null" {
		want.err = e
	}
	want.params, want.result = string(all["params"]), string(all["result"])
	return want, want.err == "" || want.err[0] == '{'
}

// FuzzFrame compares the reader with encoding/json and with our own writer.
func FuzzFrame(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1.5,"method":"a:b","params":{"x":[1,{"y":"}\""}]}}`,
		`{"jsonrpc":"2.0","\u0069d":"\ud800","result":null,"error":null}`,
		`{"jsonrpc":"2.0","id":[1, {}],"error":{"code":-1,"message":"<é>"},"error":"x"}`,
		` {"jsonrpc":"2.0","method":"\u2028\"","id":-1e400,"id":null}` + "\r",
		`[{"jsonrpc":"2.0","method":"n"}]`,
		`{"jsonrpc":"2.0","method":5,"id":01}`,
		"{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}",
		`{"jsonrpc":"2.0","params":` + strings.Repeat("[", 20) + strings.Repeat("]", 20) + `}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if bytes.IndexByte(line, '\n') >= 0 {
			return // never in a line
		}
		before := bytes.Clone(line)
		frame, err := parseFrame(line)
		got := membersOf(frame)
		want, ok := modelFrame(line)
		if ok != (err == nil) {
			t.Fatalf("parseFrame(%q): %v; encoding/json: %t", line, err, ok)
		}
		for _, member := range []string{got.id, got.params, got.result, got.err} {
			if !bytes.Contains(line, []byte(member)) {
				t.Errorf("%q has no %q", line, member)
			}
		}
		if !bytes.Equal(before, line) {
			t.Errorf("%q was changed to %q", before, line)
		}
		if err != nil {
			return
		}
		if got != want {
			t.Errorf("parseFrame(%q) = %q; want %q", line, got, want)
		}
		requireRoundTrip(t, frame)
	})
}

// requireRoundTrip writes the frame again and expects to read the same.
func requireRoundTrip(t *testing.T, f Frame) {
	t.Helper()
	want := membersOf(f)
	var line []byte
	switch {
	case f.Method != "":
		want.result, want.err = "", ""
		line = appendRequest(nil, f.ID, f.Method, f.Params)
	case f.ID != nil && f.Result != nil:
		want.params, want.err = "", ""
		line = appendResponse(nil, f.ID, "result", f.Result)
	case f.ID != nil && f.Error != nil:
		want.params = ""
		line = appendResponse(nil, f.ID, "error", f.Error)
	default:
		return
	}
	if bytes.IndexByte(line, '\n') != len(line)-1 {
		t.Fatalf("%q is not one line", line)
	}
	again, err := parseFrame(line[:len(line)-1])
	if got := membersOf(again); err != nil || got != want {
		t.Errorf("%q reads as %q, %v; want %q", line, got, err, want)
	}
}
