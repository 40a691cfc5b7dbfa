// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestUselessFaultsAreRefused(t *testing.T) {
	for _, f := range []Fault{
		{}, {Kind: "other"}, {Kind: KindCut, At: "later"}, {Kind: KindFraming}, {Kind: KindFraming, Form: "round"},
		{Kind: KindStatus}, {Kind: KindHang, At: AtAccept}, {Kind: KindStatus, Status: 700},
	} {
		_, err := (&Faults{}).Add(f)
		require.Error(t, err, "%+v", f)
	}
}

func TestASuccessCanHoldAnError(t *testing.T) {
	e := StartTest(t, Config{})
	inject(t, e, Fault{Kind: KindErrorOK, Message: "broken"})
	status, body := dial(t, e).post("/api/chat", chatWhole).whole()
	require.Equal(t, 200, status)
	require.JSONEq(t, `{"error":"broken"}`, body)
}

func TestAStreamCanEndCleanlyWithoutItsTerminator(t *testing.T) {
	for path, terminator := range map[string]string{
		"/api/chat": `"done":true`, "/v1/chat/completions": "[DONE]", "/v1/completions": "[DONE]",
		"/v1/messages": "message_stop", "/v1/responses": "response.completed",
	} {
		e := StartTest(t, Config{})
		body := `{"model":"demo","stream":true,"input":"hi","prompt":"hi",` + hi + `}`
		_, got := dial(t, e).post(path, body).whole()
		require.Contains(t, got, terminator)
		inject(t, e, Fault{Kind: KindNoTerminator})
		_, got = dial(t, e).post(path, body).whole()
		require.NotContains(t, got, terminator)
		require.NotEmpty(t, got)
	}
}

func TestATerminatedStreamCanBeHeldOpen(t *testing.T) {
	e := StartTest(t, Config{})
	inject(t, e, Fault{Kind: KindHoldOpen})
	res, err := dial(t, e).post("/api/chat", chatStream).response()
	require.NoError(t, err)
	d := json.NewDecoder(res.Body)
	for {
		var line struct{ Done bool }
		require.NoError(t, d.Decode(&line))
		if line.Done {
			break
		}
	}
	require.Equal(t, 1, e.Witness().Open)
	e.Faults.Clear()
	_, err = io.ReadAll(res.Body)
	require.NoError(t, err)
}

func TestErrorsInMidStreamHaveTheFormAskedFor(t *testing.T) {
	for form, want := range map[string]string{
		"ndjson":      `{"error":"broken"}` + "\n",
		"data":        `data: {"error":{"message":"broken","type":"server_error","code":500}}` + "\n\n",
		"data-done":   "\n\ndata: [DONE]\n\n",
		"event":       "event: error\n" + `data: {"type":"error","error":{"type":"api_error","message":"broken"}}` + "\n\n",
		"event-bare":  "event: error\n" + `data: {"code":500,"message":"broken","type":"server_error"}` + "\n\n",
		"none":        `"},"finish_reason":null}]}` + "\n\n",
		"empty-model": `"model":"","system_fingerprint":"fp_ollama","choices":[{"index":0,"delta":{"content":""},"finish_reason":null}]}` + "\n\n",
	} {
		e := StartTest(t, Config{})
		inject(t, e, Fault{Kind: KindStreamError, Form: form, Message: "broken", After: 3})
		status, body := dial(t, e).post("/v1/chat/completions", `{"model":"demo","stream":true,`+hi+`}`).whole()
		require.Equal(t, 200, status)
		require.True(t, strings.HasSuffix(body, want), "%s: %s", form, body)
		require.NotContains(t, strings.TrimSuffix(body, "data: [DONE]\n\n"), "[DONE]")
		require.Equal(t, 3, strings.Count(body, `"content":"[`)+strings.Count(body, `"content":" `), body)
	}
}

// chunksOf returns the chunks of an answer as they stand on the wire.
func chunksOf(t *testing.T, raw string) []string {
	t.Helper()
	_, body, _ := strings.Cut(raw, "\r\n\r\n")
	var chunks []string
	for body != "0\r\n\r\n" {
		size, rest, ok := strings.Cut(body, "\r\n")
		require.True(t, ok, body)
		n := 0
		for _, digit := range size {
			n = n<<4 | strings.IndexRune("0123456789abcdef", digit)
		}
		chunks = append(chunks, rest[:n])
		body = rest[n+2:]
	}
	return chunks
}

func TestFramingFaultsChangeOnlyTheFraming(t *testing.T) {
	const path, body = "/v1/messages", `{"model":"demo","stream":true,` + hi + `}`
	plain := exchangeRaw(t, StartTest(t, Config{Pace: Pace{Chunks: 24}}), "POST "+path, body)
	want := chunksOf(t, string(plain))
	for form, check := range map[string]func(chunks []string){
		"bytewise": func(chunks []string) {
			for _, c := range chunks {
				require.Len(t, c, 1)
			}
		},
		"utf8": func(chunks []string) {
			broken := 0
			for _, c := range chunks {
				if !utf8.ValidString(c) {
					broken++
				}
			}
			require.Equal(t, 4, broken) // the dash and the umlaut, each in two halves
		},
		"line":   func(chunks []string) { require.Len(t, chunks, 2*len(want)) },
		"joined": func(chunks []string) { require.Len(t, chunks, 1) },
		"ping":   func(chunks []string) { require.Equal(t, "event: ping\ndata: {\"type\":\"ping\"}\n\n", chunks[0]) },
		"comment": func(chunks []string) {
			require.Equal(t, ": a comment of the demo engine\n\n", chunks[0])
		},
		"no-last-newline": func(chunks []string) { require.True(t, strings.HasSuffix(chunks[len(chunks)-1], "}")) },
		"long-line": func(chunks []string) {
			require.Greater(t, len(strings.Join(chunks, "")), 1<<20)
		},
	} {
		e := StartTest(t, Config{Pace: Pace{Chunks: 24}})
		inject(t, e, Fault{Kind: KindFraming, Form: form})
		chunks := chunksOf(t, string(exchangeRaw(t, e, "POST "+path, body)))
		check(chunks)
		got := strings.Join(chunks, "")
		switch form {
		case "ping", "comment":
			got = strings.ReplaceAll(got, chunks[0], "")
		case "no-last-newline":
			got += "\n\n"
		case "long-line":
			continue
		}
		require.Equal(t, strings.Join(want, ""), got, form)
	}
}

func TestATrickleIsSlowAndWhole(t *testing.T) {
	e := StartTest(t, Config{Pace: Pace{Chunks: 1}})
	inject(t, e, Fault{Kind: KindTrickle, Bytes: 100, Ms: 1})
	begin := time.Now()
	_, body := dial(t, e).post("/api/chat", chatStream).whole()
	require.Contains(t, body, `"done":true`)
	require.GreaterOrEqual(t, time.Since(begin), 4*time.Millisecond)
}

func TestABodyCanBeReadSlowly(t *testing.T) {
	e := StartTest(t, Config{})
	inject(t, e, Fault{Kind: KindSlowRead, Bytes: 20, Ms: 2})
	begin := time.Now()
	status, _ := dial(t, e).post("/api/chat", chatWhole).whole()
	require.Equal(t, 200, status)
	require.GreaterOrEqual(t, time.Since(begin), 6*time.Millisecond)
}

func TestHeadersComeWithTheFirstTokenOrBeforeIt(t *testing.T) {
	for _, tt := range []struct {
		dialect Dialect
		fault   Kind
		early   bool
	}{
		{dialect: Ollama}, {Ollama, KindHeadersEarly, true}, {dialect: VLLM, early: true}, {VLLM, KindHeadersLate, false},
	} {
		e := StartTest(t, Config{Dialect: tt.dialect, Pace: Pace{First: time.Hour}, Models: []Model{{Name: "demo"}}})
		if tt.fault != "" {
			inject(t, e, Fault{Kind: tt.fault})
		}
		c := dial(t, e).post("/v1/chat/completions", `{"model":"demo","stream":true,`+hi+`}`)
		if !tt.early {
			c.silent()
			continue
		}
		res, err := c.response()
		require.NoError(t, err)
		require.Equal(t, 200, res.StatusCode)
		c.silent()
	}
}

func TestAHalfClosedConnectionCanHang(t *testing.T) {
	e := StartTest(t, Config{Pace: Pace{First: time.Hour}})
	c := dial(t, e).post("/api/chat", chatWhole)
	require.NoError(t, c.nc.CloseWrite())
	got, err := c.rest() // aborted
	require.NoError(t, err)
	require.Empty(t, got)
	require.Equal(t, "closed", ended(t, e, 1)[0].Left)

	inject(t, e, Fault{Kind: KindHalfClose})
	c = dial(t, e).post("/api/chat", chatWhole)
	require.NoError(t, c.nc.CloseWrite())
	await(t, e, "leaving", func(r Report) bool { return len(r.Requests) == 2 && r.Requests[1].Left == "closed" })
	c.silent()
}

func TestKeepAliveAndCloseCanStandInOneHead(t *testing.T) {
	e := StartTest(t, Config{Dialect: LMStudio})
	inject(t, e, Fault{Kind: KindBothHeaders})
	res, err := dial(t, e).post("/v1/models", "").response()
	require.NoError(t, err)
	require.Equal(t, "timeout=5", res.Header.Get("Keep-Alive"))
	require.True(t, res.Close)
}

func TestListsCanBeWrongInManyWays(t *testing.T) {
	for form, want := range map[string]string{
		"empty": `{"models":[]}`, "null": `{"models":null}`, "absent": `{"demo":true}`,
	} {
		e := StartTest(t, Config{})
		inject(t, e, Fault{Kind: KindList, Form: form})
		_, body := dial(t, e).send("GET /api/tags HTTP/1.1\r\n\r\n").whole()
		require.JSONEq(t, want, body)
	}
	count := func(form string, part string) int {
		e := StartTest(t, Config{Models: []Model{{Name: "demo"}}})
		inject(t, e, Fault{Kind: KindList, Form: form})
		_, body := dial(t, e).send("GET /api/tags HTTP/1.1\r\n\r\n").whole()
		require.True(t, json.Valid([]byte(body)), body)
		return strings.Count(body, part)
	}
	require.Equal(t, 2, count("repeated", `"name":"demo:latest"`))
	require.Equal(t, 4, count("spellings", `"name":`))
	require.Equal(t, 1, count("spellings", `"name":"registry.ollama.ai/library/demo:latest"`))
	require.Equal(t, 10_000, count("many", `"name":`))
	require.Equal(t, 1, count("bad-row", `"name":7`))
	require.Equal(t, 1, count("both", `"data":[`))
	require.Equal(t, 0, count("changing", `"name":`))
}
