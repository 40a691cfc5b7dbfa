// SPDX-License-Identifier: Apache-2.0

package jsonrpc

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/internal/jsoncheck"
)

// members are those of a Frame as text; "" is absent.
type members struct{ id, method, params, result, err string }

func membersOf(f Frame) members {
	return members{string(f.ID), f.Method, string(f.Params), string(f.Result), string(f.Error)}
}

func TestMembersAreReadByteForByte(t *testing.T) {
	for _, tt := range []struct {
		name, line string
		want       members
	}{
		{"request", `{"jsonrpc":"2.0","id":1,"method":"a:b","params":{"x":1}}`, members{"1", "a:b", `{"x":1}`, "", ""}},
		{"notification", `{"jsonrpc":"2.0","method":"n"}`, members{"", "n", "", "", ""}},
		{"result", `{"jsonrpc":"2.0","id":1,"result":{"a":[]}}`, members{"1", "", "", `{"a":[]}`, ""}},
		{"null result", `{"jsonrpc":"2.0","id":1,"result":null}`, members{"1", "", "", "null", ""}},
		{"error", `{"jsonrpc":"2.0","id":1,"error":{"code":-1}}`, members{"1", "", "", "", `{"code":-1}`}},
		{"null error", `{"jsonrpc":"2.0","id":1,"result":0,"error":null}`, members{"1", "", "", "0", ""}},
		{"empty method", `{"jsonrpc":"2.0","id":1,"method":"","result":0}`, members{"1", "", "", "0", ""}},
		{"neither", `{"jsonrpc":"2.0"}`, members{}},
		{"null id", `{"jsonrpc":"2.0","id":null,"method":"n"}`, members{"", "n", "", "", ""}},
		{"null params", `{"jsonrpc":"2.0","method":"n","params":null}`, members{"", "n", "null", "", ""}},
		{"scalar params", `{"jsonrpc":"2.0","method":"n","params":"x"}`, members{"", "n", `"x"`, "", ""}},
		{"unknown members", `{"x":{"id":2},"jsonrpc":"2.0","ID":3,"method":"n","Params":1}`, members{"", "n", "", "", ""}},
		{"blanks inside values", "{\t\"jsonrpc\" : \"2.0\" , \"method\":\"n\", \"params\" : [ 1 ,\t{ } ] }",
			members{"", "n", "[ 1 ,\t{ } ]", "", ""}},
		{"blanks around", " \t{\"jsonrpc\":\"2.0\",\"method\":\"n\"} \t\r", members{"", "n", "", "", ""}},
		{"escaped keys", `{"json\u0072pc":"2.\u0030","\u0069d":7,"m\u0065thod":"n","p\u0061rams":[]}`,
			members{"7", "n", "[]", "", ""}},
		{"escaped method", `{"jsonrpc":"2.0","method":"\"\\\/\u00e9\ud83d\ude00\n"}`, members{"", "\"\\/é😀\n", "", "", ""}},
		{"lone high surrogate", `{"jsonrpc":"2.0","method":"\ud800x"}`, members{"", "\uFFFDx", "", "", ""}},
		{"lone low surrogate", `{"jsonrpc":"2.0","method":"\udc00\u0041"}`, members{"", "\uFFFDA", "", "", ""}},
		{"lone surrogate before an escape", `{"jsonrpc":"2.0","method":"\ud800\u0041"}`, members{"", "\uFFFDA", "", "", ""}},
		{"lone surrogates elsewhere", `{"jsonrpc":"2.0","id":"\ud800","method":"n","params":["\udfff"]}`,
			members{`"\ud800"`, "n", `["\udfff"]`, "", ""}},
		{"brackets in strings", `{"jsonrpc":"2.0","id":"}]\"{","method":"n","params":{"a":"]}\\"}}`,
			members{`"}]\"{"`, "n", `{"a":"]}\\"}`, "", ""}},
		{"last id counts", `{"jsonrpc":"2.0","id":1,"method":"n","id":2}`, members{"2", "n", "", "", ""}},
		{"last id is null", `{"jsonrpc":"2.0","id":1,"method":"n","id":null}`, members{"", "n", "", "", ""}},
		{"last key is escaped", `{"jsonrpc":"2.0","id":1,"method":"n","i\u0064":2}`, members{"2", "n", "", "", ""}},
		{"last method counts", `{"jsonrpc":"2.0","method":5,"method":"n"}`, members{"", "n", "", "", ""}},
		{"last error counts", `{"jsonrpc":"2.0","id":1,"error":"x","error":{}}`, members{"1", "", "", "", "{}"}},
		{"last error is null", `{"jsonrpc":"2.0","id":1,"error":"x","error":null,"result":1}`, members{"1", "", "", "1", ""}},
		{"last version counts", `{"jsonrpc":1,"method":"n","jsonrpc":"2.0"}`, members{"", "n", "", "", ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := parseFrame([]byte(tt.line))
			require.NoError(t, err, tt.line)
			require.Equal(t, tt.want, membersOf(f), tt.line)
		})
	}
}

func TestMalformedFramesAreRefused(t *testing.T) {
	const good = `{"jsonrpc":"2.0","method":"n"}`
	for _, tt := range []struct {
		name, line string
		want       error
	}{
		{"empty line", "", errNotObject},
		{"blank line", " \t\r", errNotObject},
		{"text", "hello", errNotObject},
		{"array", "[" + good + "]", errNotObject},
		{"string", `"x"`, errNotObject},
		{"null", "null", errNotObject},
		{"two objects", good + good, errNotObject},
		{"text behind", good + "x", errNotObject},
		{"cut off", good[:len(good)-1], errNotObject},
		{"comma before the end", `{"jsonrpc":"2.0","method":"n",}`, errNotObject},
		{"no comma", `{"jsonrpc":"2.0" "method":"n"}`, errNotObject},
		{"single quotes", `{'jsonrpc':'2.0','method':'n'}`, errNotObject},
		{"comment", `{"jsonrpc":"2.0",/**/"method":"n"}`, errNotObject},
		{"byte order mark", "\uFEFF" + good, errNotObject},
		{"leading zero", `{"jsonrpc":"2.0","method":"n","id":01}`, errNotObject},
		{"plus sign", `{"jsonrpc":"2.0","method":"n","id":+1}`, errNotObject},
		{"not a number", `{"jsonrpc":"2.0","method":"n","id":NaN}`, errNotObject},
		{"infinity", `{"jsonrpc":"2.0","method":"n","id":-Infinity}`, errNotObject},
		{"control character", "{\"jsonrpc\":\"2.0\",\"method\":\"a\tb\"}", errNotObject},
		{"zero byte", good + "\x00", errNotObject},
		{"wrong escape", `{"jsonrpc":"2.0","method":"\x41"}`, errNotObject},
		{"short escape", `{"jsonrpc":"2.0","method":"\u41"}`, errNotObject},
		{"invalid UTF-8", "{\"jsonrpc\":\"2.0\",\"method\":\"n\",\"params\":\"\xff\"}", errNotUTF8},
		{"overlong UTF-8", "{\"jsonrpc\":\"2.0\",\"method\":\"\xc0\xaf\"}", errNotUTF8},
		{"surrogate as UTF-8", "{\"jsonrpc\":\"2.0\",\"method\":\"\xed\xa0\x80\"}", errNotUTF8},
		{"invalid UTF-8 in an unknown member", "{\"jsonrpc\":\"2.0\",\"method\":\"n\",\"x\xff\":1}", errNotUTF8},
		{"no version", `{"method":"n"}`, errVersion},
		{"version 1.0", `{"jsonrpc":"1.0","method":"n"}`, errVersion},
		{"version as a number", `{"jsonrpc":2.0,"method":"n"}`, errVersion},
		{"version in capitals", `{"JSONRPC":"2.0","method":"n"}`, errVersion},
		{"last version is wrong", `{"jsonrpc":"2.0","method":"n","jsonrpc":null}`, errVersion},
		{"method a number", `{"jsonrpc":"2.0","method":1}`, errMethodType},
		{"method null", `{"jsonrpc":"2.0","method":null}`, errMethodType},
		{"method an array of a string", `{"jsonrpc":"2.0","method":["n"]}`, errMethodType},
		{"last method is wrong", `{"jsonrpc":"2.0","method":"n","method":{}}`, errMethodType},
		{"error a string", `{"jsonrpc":"2.0","id":1,"error":"x"}`, errErrorType},
		{"error an array", `{"jsonrpc":"2.0","id":1,"error":[]}`, errErrorType},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parseFrame([]byte(tt.line))
			require.ErrorIs(t, err, tt.want, tt.line)
		})
	}
}

func TestNestingIsBounded(t *testing.T) {
	nested := func(open, end string, levels int) string {
		return `{"jsonrpc":"2.0","method":"n","params":` +
			strings.Repeat(open, levels) + "0" + strings.Repeat(end, levels) + "}"
	}
	_, err := parseFrame([]byte(nested("[", "]", jsoncheck.MaxDepth-1))) // the frame is a level, too
	require.NoError(t, err)
	_, err = parseFrame([]byte(nested("[", "]", jsoncheck.MaxDepth)))
	require.ErrorIs(t, err, errTooDeep)
	_, err = parseFrame([]byte(nested(`{"[[":`, "}", jsoncheck.MaxDepth-1)))
	require.NoError(t, err, "brackets in strings are no levels")
	_, err = parseFrame([]byte(nested(`{"a":`, "}", jsoncheck.MaxDepth)))
	require.ErrorIs(t, err, errTooDeep)
	_, err = parseFrame([]byte(`{"jsonrpc":"2.0","method":"n","params":[` + strings.Repeat("[],", 2*jsoncheck.MaxDepth) + "0]}"))
	require.NoError(t, err, "many brackets side by side are not deep")
	_, err = parseFrame([]byte("{" + strings.Repeat("[", DefaultMaxFrameBytes-1)))
	require.ErrorIs(t, err, errTooDeep)
}

func TestIdsAreEchoedByteForByte(t *testing.T) {
	for _, id := range []string{
		"0", "1", "-3", "-0", "1.5", "1.50", "1e400", "1E+2", "123456789012345678901234567890",
		strings.Repeat("9", 5000), `""`, `"1"`, `"\u0041\/\ud800"`, `"é😀"`, `"a\"b}"`, "true", "false", "[]",
		`[1, "x"]`, `{}`, `{"b":1, "a":{"a":1,"a":2}}`,
	} {
		c := unserved(Config{Handle: func(r *Request) {
			if r.IsNotification() {
				t.Errorf("id %s: taken for a notification", id)
			}
			r.Reply(nil)
		}})
		c.dispatch([]byte(`{"jsonrpc":"2.0","id": ` + id + ` ,"method":"m"}`))
		require.Equal(t, []string{`{"jsonrpc":"2.0","id":` + id + `,"result":null}`}, queued(c))
	}
}

func TestANullIdIsANotification(t *testing.T) {
	handled := 0
	c := unserved(Config{Handle: func(r *Request) {
		handled++
		if !r.IsNotification() {
			t.Errorf("%s is no notification", r.Method)
		}
		r.Reply(1)
		r.Fail(MethodNotFound(r.Method))
	}})
	c.dispatch([]byte(`{"jsonrpc":"2.0","id":null,"method":"m"}`))
	c.dispatch([]byte(`{"jsonrpc":"2.0","method":"m"}`))
	require.Equal(t, 2, handled)
	require.Equal(t, []string{""}, queued(c))
}

func TestParamsCannotGrowIntoTheLine(t *testing.T) {
	line := []byte(`{"jsonrpc":"2.0","params":[1],"method":"n"}`)
	f, err := parseFrame(line)
	require.NoError(t, err)
	_ = append(f.Params, "xxxxxxxx"...)
	require.Equal(t, "n", f.Method)
	require.JSONEq(t, `{"jsonrpc":"2.0","params":[1],"method":"n"}`, string(line))
}
