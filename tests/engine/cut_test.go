// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAConnectionCanBeCutAtEveryMomentOfAStream(t *testing.T) {
	for _, tt := range []struct {
		at             Moment
		head, terminal bool // what the client has seen by then
		tokens         int
	}{
		{at: AtHead}, {at: AtBody}, {at: AtBeforeHeaders},
		{at: AtAfterHeaders, head: true},
		{at: AtMidStream, head: true, tokens: 2},
		{at: AtBeforeTerminator, head: true, tokens: 4},
		{at: AtEnd, head: true, tokens: 4, terminal: true},
	} {
		t.Run(string(tt.at), func(t *testing.T) {
			e := StartTest(t, Config{Pace: Pace{Chunks: 4}})
			inject(t, e, Fault{Kind: KindCut, At: tt.at, Path: "/api/*"})
			got, _ := dial(t, e).post("/api/chat", chatStream).rest() // at head the body is unread, which may reset
			require.Equal(t, tt.head, strings.HasPrefix(got, "HTTP/1.1 200 OK\r\n"), got)
			require.Equal(t, tt.tokens, strings.Count(got, `"done":false`), got)
			require.Equal(t, tt.terminal, strings.Contains(got, `"done":true`), got)
			require.Equal(t, tt.terminal, strings.HasSuffix(got, "0\r\n\r\n"), got)
			require.Equal(t, "cut", ended(t, e, 1)[0].End)
		})
	}
}

func TestAWholeAnswerCanBeShortOfItsLength(t *testing.T) {
	for _, at := range []Moment{AtAfterHeaders, AtMidStream, AtBeforeTerminator} {
		e := StartTest(t, Config{})
		inject(t, e, Fault{Kind: KindCut, At: at})
		status, body, err := dial(t, e).post("/api/chat", chatWhole).answer()
		require.Equal(t, 200, status, at)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%s: %q", at, body)
		require.NotContains(t, body, "eval_duration\":301000}", at)
	}
}

func TestAResetIsAReset(t *testing.T) {
	for _, at := range []Moment{AtBody, AtMidStream, AtEnd} {
		e := StartTest(t, Config{Pace: Pace{Chunks: 4}})
		inject(t, e, Fault{Kind: KindReset, At: at})
		_, err := dial(t, e).post("/api/chat", chatStream).rest()
		require.ErrorIs(t, err, syscall.ECONNRESET, at)
	}
}

func TestANewConnectionCanBeAcceptedAndDropped(t *testing.T) {
	e := StartTest(t, Config{})
	inject(t, e, Fault{Kind: KindCut, At: AtAccept, Skip: 1, Times: 1})
	status, _ := dial(t, e).post("/api/chat", chatWhole).whole()
	require.Equal(t, 200, status)
	got, _ := dial(t, e).rest()
	require.Empty(t, got)
	status, _ = dial(t, e).post("/api/chat", chatWhole).whole()
	require.Equal(t, 200, status)
	require.Len(t, ended(t, e, 2), 2)
}

func TestAKeptConnectionCanDieJustAsARequestArrives(t *testing.T) {
	e := StartTest(t, Config{})
	inject(t, e, Fault{Kind: KindCut, At: AtFirstByte})
	c := dial(t, e)
	status, _ := c.post("/api/chat", chatWhole).whole() // the first one is not on a kept connection
	require.Equal(t, 200, status)
	got, _ := c.post("/api/chat", chatWhole).rest()
	require.Empty(t, got)
	require.Len(t, e.Witness().Requests, 1)
}

func TestGarbageIsNoHTTP(t *testing.T) {
	e := StartTest(t, Config{Pace: Pace{Chunks: 4}})
	inject(t, e, Fault{Kind: KindGarbage, Times: 1}, Fault{Kind: KindGarbage, At: AtMidStream, Skip: 1})
	_, _, err := dial(t, e).post("/api/chat", chatStream).answer()
	require.ErrorContains(t, err, "malformed HTTP")
	_, body, err := dial(t, e).post("/api/chat", chatStream).answer()
	require.Error(t, err)
	require.Equal(t, 2, strings.Count(body, `"done":false`), body)
}

func TestSilenceEndsAndAHangDoesNot(t *testing.T) {
	for _, at := range []Moment{AtHead, AtBody, AtBeforeHeaders, AtAfterHeaders, AtMidStream, AtBeforeTerminator} {
		t.Run(string(at), func(t *testing.T) {
			e := StartTest(t, Config{})
			inject(t, e, Fault{Kind: KindSilence, At: at, Ms: 30})
			begin := time.Now()
			_, body := dial(t, e).post("/api/chat", chatStream).whole()
			require.Contains(t, body, `"done":true`)
			require.GreaterOrEqual(t, time.Since(begin), 30*time.Millisecond)

			inject(t, e, Fault{Kind: KindHang, At: at})
			c := dial(t, e).post("/api/chat", chatStream)
			await(t, e, "second request", func(r Report) bool { return r.Total == 2 && r.Open == 1 })
			e.Faults.Clear()
			_, body = c.whole() // a fault that is cleared lets go
			require.Contains(t, body, `"done":true`)

			inject(t, e, Fault{Kind: KindHang, At: at})
			c = dial(t, e).post("/api/chat", chatStream)
			await(t, e, "third request", func(r Report) bool { return r.Total == 3 && r.Open == 1 })
			require.NoError(t, c.nc.Close())
			r := ended(t, e, 3)[2]
			require.Equal(t, "left", r.End)
			require.NotEmpty(t, r.Left)
		})
	}
}

func TestAHungRequestEndsWithTheEngine(t *testing.T) {
	e := StartTest(t, Config{})
	inject(t, e, Fault{Kind: KindHang})
	dial(t, e).post("/api/chat", chatStream)
	await(t, e, "request", func(r Report) bool { return r.Open == 1 })
	e.Close()
	require.Equal(t, "stopped", e.Witness().Requests[0].End)
}

func TestAnEngineThatEndsCutsItsStreams(t *testing.T) {
	e := StartTest(t, Config{Pace: Pace{Delay: time.Hour}})
	c := dial(t, e).post("/api/generate", `{"model":"demo","prompt":"hi"}`)
	res, err := c.response()
	require.NoError(t, err)
	_, err = res.Body.Read(make([]byte, 1))
	require.NoError(t, err)
	e.Close()
	_, err = io.ReadAll(res.Body)
	require.Error(t, err)
	_, err = net.Dial("tcp", e.Addr())
	require.Error(t, err)
}

func TestStatusFaultsSpeakTheDialectOfThePath(t *testing.T) {
	for _, tt := range []struct {
		dialect Dialect
		path    string
		want    string
	}{
		{Ollama, "/api/chat", `{"error":"no"}`},
		{Ollama, "/v1/chat/completions", `{"error":{"message":"no","type":"api_error","param":null,"code":null}}` + "\n"},
		{Ollama, "/v1/messages", `{"type":"error","error":{"type":"rate_limit_error","message":"no"},"request_id":"req_`},
		{LMStudio, "/v1/chat/completions", "{\n  \"error\": {\n    \"message\": \"no\","},
		{LlamaCpp, "/v1/chat/completions", `{"error":{"code":429,"message":"no","type":"server_error"}}`},
		{VLLM, "/v1/chat/completions", `{"error":{"message":"no","type":"TooManyRequestsError","param":null,"code":429}}`},
	} {
		e := StartTest(t, Config{Dialect: tt.dialect})
		inject(t, e, Fault{Kind: KindStatus, Status: 429, Message: "no", Headers: map[string]string{"Retry-After": "7"}})
		res, err := dial(t, e).post(tt.path, `{"model":"m",`+hi+`}`).response()
		require.NoError(t, err)
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Equal(t, 429, res.StatusCode)
		require.Equal(t, "7", res.Header.Get("Retry-After"))
		require.True(t, strings.HasPrefix(string(body), tt.want), "%s %s: %s", tt.dialect, tt.path, body)
	}
}

func TestAStatusFaultCanSetEverything(t *testing.T) {
	e := StartTest(t, Config{})
	empty, odd := "", "odd"
	for _, status := range []int{400, 401, 403, 404, 408, 429, 500, 501, 503} {
		inject(t, e, Fault{Kind: KindStatus, Status: status})
		got, body := dial(t, e).post("/api/chat", chatWhole).whole()
		require.Equal(t, status, got)
		require.Contains(t, body, "demo engine")
	}
	inject(t, e, Fault{Kind: KindStatus, Status: 403, Body: &empty, Close: true})
	c := dial(t, e)
	res, err := c.post("/api/chat", chatWhole).response()
	require.NoError(t, err)
	require.True(t, res.Close)
	require.Zero(t, res.ContentLength)
	inject(t, e, Fault{Kind: KindStatus, Status: 302, Body: &odd, Headers: map[string]string{"Location": "/x"}})
	got, body := dial(t, e).post("/api/chat", chatWhole).whole()
	require.Equal(t, http.StatusFound, got)
	require.Equal(t, odd, body)
}

func TestFaultsSelectTheirRequests(t *testing.T) {
	e := StartTest(t, Config{})
	inject(t, e, Fault{Kind: KindStatus, Status: 503, Path: "/api/*", Method: "POST", Model: "DEMO", Skip: 1, Times: 2})
	c := dial(t, e)
	var got []int
	for range 5 {
		status, _ := c.post("/api/chat", chatWhole).whole()
		got = append(got, status)
	}
	require.Equal(t, []int{200, 503, 503, 200, 200}, got)
	require.Equal(t, int64(2), e.Faults.List()[0].Hits)
	inject(t, e, Fault{Kind: KindStatus, Status: 503, Model: "other"})
	status, _ := c.post("/api/chat", chatWhole).whole()
	require.Equal(t, 200, status)
	inject(t, e, Fault{Kind: KindStatus, Status: 503, Path: "/v1/chat/completions"})
	status, _ = c.post("/api/chat", chatWhole).whole()
	require.Equal(t, 200, status)
}

func TestAStreamIsCutAfterAsManyEventsAsTheFaultSays(t *testing.T) {
	for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"} {
		e := StartTest(t, Config{})
		inject(t, e, Fault{Kind: KindCut, At: AtMidStream, After: 7})
		_, got, err := dial(t, e).post(path, `{"model":"demo","stream":true,"input":"hi","prompt":"hi",`+hi+`}`).answer()
		require.Error(t, err)
		require.Equal(t, 7, strings.Count(got, "data: "), "%s: %s", path, got)
	}
}
