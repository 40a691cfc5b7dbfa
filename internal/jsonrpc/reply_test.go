// SPDX-License-Identifier: Apache-2.0

package jsonrpc

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// answered returns the queued answer to one request that handle got.
func answered(t *testing.T, handle func(*Request)) string {
	t.Helper()
	c := unserved(Config{Handle: handle})
	c.dispatch([]byte(`{"jsonrpc":"2.0","id":1,"method":"m"}`))
	frames := queued(c)
	require.Len(t, frames, 1)
	return frames[0]
}

func TestRepliesAreEncoded(t *testing.T) {
	bad := func() {}
	for _, tt := range []struct {
		name   string
		answer func(*Request)
		want   string // behind the id
	}{
		{"nil", func(r *Request) { r.Reply(nil) }, `"result":null`},
		{"nil raw", func(r *Request) { r.Reply(json.RawMessage(nil)) }, `"result":null`},
		{"raw", func(r *Request) { r.Reply(rawJSON(`{"b":1, "a":1.0}`)) }, `"result":{"b":1, "a":1.0}`},
		{"text", func(r *Request) { r.Reply("<\n>") }, `"result":"<\n>"`},
		{"not encodable", func(r *Request) { r.Reply(bad) },
			`"error":{"code":-32603,"message":"encode result: json: unsupported type: func()"}`},
		{"error", func(r *Request) { r.Fail(errors.New("no room")) }, `"error":{"code":-32000,"message":"no room"}`},
		{"coded", func(r *Request) { r.Fail(fmt.Errorf("wrapped: %w", InvalidParams("no %s", "x"))) },
			`"error":{"code":-32602,"message":"invalid params: no x"}`},
		{"unknown", func(r *Request) { r.Fail(MethodNotFound(r.Method)) },
			`"error":{"code":-32601,"message":"method not found: m"}`},
		{"data", func(r *Request) { r.Fail(&Error{Code: 7, Data: rawJSON(`[1]`)}) },
			`"error":{"code":7,"message":"","data":[1]}`},
		{"bad data", func(r *Request) { r.Fail(&Error{Code: 7, Message: "x", Data: rawJSON(`[`)}) },
			`"error":{"code":7,"message":"x"}`},
		{"first of two", func(r *Request) { r.Fail(Errorf(1, "first")); r.Reply("second") },
			`"error":{"code":1,"message":"first"}`},
		{"relayed failure", func(r *Request) { r.Relay(Response{Err: ErrTimeout}, "ask worker") },
			`"error":{"code":-32000,"message":"ask worker: no answer in time"}`},
		{"relayed null", func(r *Request) { r.Relay(Response{Result: rawJSON("null")}, "") }, `"result":null`},
		{"relayed nothing", func(r *Request) { r.Relay(Response{}, "") }, `"result":null`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, `{"jsonrpc":"2.0","id":1,`+tt.want+"}", answered(t, tt.answer))
		})
	}
}

// A client asks a relay, the relay asks a worker; both ends are played byte for
// byte.
func TestARelayTouchesNothing(t *testing.T) {
	const (
		id     = `{"n": 1.50}`
		params = `{"b":1e400, "a":"<\u00e9\/>","a":[ ]}`
	)
	for _, answer := range []string{
		`"result":{"z":1.0, "a":"<&>\ud800","a":-0}`,
		`"result":null`,
		`"error":{"code":-32010,"message":"\u003cport\u003e","data":{"z":1, "a":[1.0]},"more":"x"}`,
		`"error":{"code":1.5}`,
	} {
		toWorker, workerEnd := net.Pipe()
		defer workerEnd.Close()
		worker := serve(t, toWorker, Config{})
		_, client := serveRaw(t, Config{Handle: func(r *Request) {
			worker.Start(r.Method, r.Params, 0, func(resp Response) { r.Relay(resp, "relay") })
		}})
		client.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"m","params":` + params + `}`)
		far := newRawPeer(t, workerEnd)
		require.Equal(t, `{"jsonrpc":"2.0","id":1,"method":"m","params":`+params+`}`, far.line())
		far.send(`{"jsonrpc":"2.0","id":1,` + answer + `}`)
		require.Equal(t, `{"jsonrpc":"2.0","id":`+id+`,`+answer+`}`, client.line())
	}
}

func TestARequestMayBeAnsweredFromAnywhereOnce(t *testing.T) {
	kept := make(chan *Request, 1)
	s, peer := serveRaw(t, Config{Handle: func(r *Request) { kept <- r }})
	peer.send(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
	r := <-kept
	for i := range 20 {
		go r.Reply(i)
	}
	require.Contains(t, peer.line(), `"id":1,"result":`)
	require.NoError(t, s.Notify("end", nil))
	require.Contains(t, peer.line(), `"end"`)
}
