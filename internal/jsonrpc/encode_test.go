// SPDX-License-Identifier: Apache-2.0

package jsonrpc

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFramesAreWrittenCompact(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{string(appendRequest(nil, nil, "n", nil)), `{"jsonrpc":"2.0","method":"n"}`},
		{string(appendRequest(nil, nil, "n", rawJSON("null"))), `{"jsonrpc":"2.0","method":"n","params":null}`},
		{string(appendRequest(nil, []byte("7"), "a:b", rawJSON(`{"x":1}`))),
			`{"jsonrpc":"2.0","id":7,"method":"a:b","params":{"x":1}}`},
		{string(appendRequest(nil, nil, "\"\\\n<é>", nil)), `{"jsonrpc":"2.0","method":"\"\\\n<é>"}`},
		{string(appendResponse(nil, rawJSON(`"x"`), "result", rawJSON("{}"))), `{"jsonrpc":"2.0","id":"x","result":{}}`},
		{string(appendResponse(nil, rawJSON("1"), "result", nil)), `{"jsonrpc":"2.0","id":1,"result":null}`},
	} {
		require.Equal(t, tt.want+"\n", tt.got)
	}
}

// A value that some caller encoded with line breaks must not tear the frame.
func TestAFrameIsOneLineWhateverItCarries(t *testing.T) {
	pretty := json.RawMessage("{\n \"a\": [\n\n1\n]\r\n}\n")
	for _, b := range [][]byte{
		appendRequest(nil, nil, "n", pretty),
		appendResponse(nil, rawJSON("1"), "result", pretty),
		appendResponse([]byte("{}\n"), rawJSON("1"), "error", pretty)[3:],
	} {
		require.Equal(t, len(b)-1, strings.IndexByte(string(b), '\n'), "%q", b)
		f, err := parseFrame(b[:len(b)-1])
		require.NoError(t, err)
		for _, member := range []json.RawMessage{f.Params, f.Result, f.Error} {
			if member != nil {
				require.JSONEq(t, `{"a":[1]}`, string(member))
			}
		}
	}
	require.Equal(t, "{\n \"a\": [\n\n1\n]\r\n}\n", string(pretty), "the caller's bytes are its own")
}

func TestMarshalDoesNotEscapeHTML(t *testing.T) {
	b, err := Marshal(map[string]string{"a": "<&>\n"})
	require.NoError(t, err)
	require.Equal(t, `{"a":"<&>\n"}`, string(b))
	same := rawJSON(`{"b":1, "a":1.0}`)
	b, err = Marshal(same)
	require.NoError(t, err)
	require.Equal(t, same, b)
}
