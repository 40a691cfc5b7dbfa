// SPDX-License-Identifier: Apache-2.0

package jsonrpc

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBrokenFramesAreReportedOnceASecond(t *testing.T) {
	for _, tt := range []struct{ name, line, message string }{
		{"malformed", "no frame", "malformed frame skipped"},
		{"too long", strings.Repeat("x", 101), "frame over the limit skipped"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log fakeLog
				_, peer := serveRaw(t, Config{Log: log.logger(), MaxFrameBytes: 100, Handle: echo})
				const lines, pause = 50, 100 * time.Millisecond
				for range lines {
					peer.send(tt.line)
					<-time.After(pause)
				}
				records := log.all()
				require.Len(t, records, 5, "in five seconds")
				frames := int64(0)
				for i, r := range records {
					require.Equal(t, tt.message, r.message)
					frames += r.attrs["frames"].(int64)
					if i > 0 {
						require.GreaterOrEqual(t, r.at.Sub(records[i-1].at), reportEvery)
					}
				}
				require.EqualValues(t, 1+4*10, frames, "each report counts those since the one before")

				peer.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
				require.Equal(t, `{"jsonrpc":"2.0","id":1,"result":null}`, peer.line())
			})
		})
	}
}

func TestOnlyAnUnansweredRequestIsRefusedAsInvalid(t *testing.T) {
	for _, tt := range []struct {
		line string
		id   string // in the answer; "" for silence
	}{
		{`{"jsonrpc":"1.0","id":1,"method":"m"}`, "1"},
		{`{"id":1.50,"method":"m"}`, "1.50"},
		{`{"jsonrpc":"2.0","id":{"a": 1},"method":5}`, `{"a": 1}`},
		{`{"jsonrpc":"2.0","id":"x","method":null}`, `"x"`},
		{`{"jsonrpc":"2.0","id":1,"method":""}`, "1"},
		{`{"jsonrpc":"2.0","id":1,"method":[],"params":5}`, "1"},
		// Not a request, or nobody to answer.
		{`{"jsonrpc":"1.0","method":"m"}`, ""},
		{`{"jsonrpc":"1.0","id":null,"method":"m"}`, ""},
		{`{"jsonrpc":"1.0","id":1}`, ""},
		{`{"jsonrpc":"1.0","id":1,"result":1}`, ""},
		{`{"jsonrpc":"2.0","id":1,"method":5,"result":null}`, ""},
		{`{"jsonrpc":"2.0","id":1,"method":5,"error":{}}`, ""},
		{`{"jsonrpc":"2.0","id":1,"method":5,"error":"text"}`, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"m","error":"text"}`, ""},
		{`{"jsonrpc":"2.0","id":1,"error":"text"}`, ""},
		{`{"jsonrpc":"2.0","id":1}`, ""},
		{`{"jsonrpc":"2.0"}`, ""},
		// Not readable.
		{`[{"jsonrpc":"2.0","id":1,"method":"m"}]`, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"m"`, ""},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", ""},
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`, ""},
		{"", ""},
	} {
		for _, refuse := range []bool{true, false} {
			c := unserved(Config{RefuseInvalid: refuse, Handle: func(r *Request) { t.Errorf("%s handled", tt.line) }})
			want := ""
			if tt.id != "" && refuse {
				want = `{"jsonrpc":"2.0","id":` + tt.id + `,"error":{"code":-32600,"message":"invalid request"}}`
			}
			c.dispatch([]byte(tt.line))
			require.Equal(t, []string{want}, queued(c), "%.80s, refuse %t", tt.line, refuse)
		}
	}
}

func TestAFrameThatIsNeitherIsIgnoredWithoutAReport(t *testing.T) {
	var log fakeLog
	c := unserved(Config{Log: log.logger(), RefuseInvalid: true})
	c.dispatch([]byte(`{"jsonrpc":"2.0","x":1}`)) // WR-18
	require.Equal(t, []string{""}, queued(c))
	require.Empty(t, log.all())
}

func TestNoiseOnALinkDoesNotEndIt(t *testing.T) {
	near, far := osPipes(t)
	serve(t, near, Config{Handle: echo, MaxFrameBytes: 1 << 10, RefuseInvalid: true})
	peer := newRawPeer(t, far)
	for _, noise := range []string{
		"\n\r\n\n", strings.Repeat("\x00\xff{", 5000) + "\n", strings.Repeat("{", 1<<10) + "\n", `{"jsonrpc":"2.0"` + "\n",
		"[]\n", "\"\n", strings.Repeat("x", 1<<20) + "\r\n",
	} {
		_, err := far.Write([]byte(noise))
		require.NoError(t, err)
		peer.send(`{"jsonrpc":"2.0","id":"a","method":"ping","params":{}}`)
		require.Equal(t, `{"jsonrpc":"2.0","id":"a","result":{}}`, peer.line())
	}
}
