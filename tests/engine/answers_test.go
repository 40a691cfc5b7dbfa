// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

func TestEveryAnswerSaysThatThereIsNoModel(t *testing.T) {
	const want = "[demo engine, no model] Request "
	for _, d := range Dialects() {
		e := StartTest(t, Config{Dialect: d, Models: []Model{{Name: "demo"}}, Pace: Pace{Chunks: 8}})
		body := `{"model":"demo","prompt":"hi",` + hi + `}`
		_, got := dial(t, e).post("/v1/chat/completions", body).whole()
		require.True(t, strings.HasPrefix(gjson.Get(got, "choices.0.message.content").Str, want), "%s: %s", d, got)
		_, got = dial(t, e).post("/v1/completions", body).whole()
		require.True(t, strings.HasPrefix(gjson.Get(got, "choices.0.text").Str, want), "%s: %s", d, got)
		_, got = dial(t, e).post("/v1/messages", body).whole()
		require.True(t, strings.HasPrefix(gjson.Get(got, "content.0.text").Str, want), "%s: %s", d, got)
		_, got = dial(t, e).post("/v1/responses", `{"model":"demo","input":"hi"}`).whole()
		require.True(t, strings.HasPrefix(gjson.Get(got, "output.0.content.0.text").Str, want), "%s: %s", d, got)
	}
}

func TestOtherRequestsGetOtherTexts(t *testing.T) {
	e := StartTest(t, Config{})
	_, one := dial(t, e).post("/api/chat", chatWhole).whole()
	_, two := dial(t, e).post("/api/chat", strings.Replace(chatWhole, "hi", "ho", 1)).whole()
	require.NotEqual(t, gjson.Get(one, "message.content").Str, gjson.Get(two, "message.content").Str)
}

func TestTokensComeInTheSizeAskedFor(t *testing.T) {
	e := StartTest(t, Config{Pace: Pace{Chunks: 3, ChunkBytes: 5000}})
	_, body := dial(t, e).post("/api/chat", chatWhole).whole()
	require.Len(t, gjson.Get(body, "message.content").Str, 15_000)
	e.SetPace(Pace{Chunks: 40, Joined: true})
	raw := exchangeRaw(t, e, "POST /api/chat", chatStream)
	require.Len(t, chunksOf(t, string(raw)), 41)
}

const tools = `"tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":` +
	`{"where":{"type":"string"},"n":{"type":"integer"}},"required":["where","n"]}}}]`

func TestAToolIsCalledOnce(t *testing.T) {
	const args = `{"where":"demo","n":1}`
	for _, stream := range []string{"false", "true"} {
		e := StartTest(t, Config{})
		body := `{"model":"demo","stream":` + stream + `,"input":"hi",` + hi + `,` + tools + `}`
		_, got := dial(t, e).post("/api/chat", body).whole()
		require.Contains(t, got, `"tool_calls":[{"function":{"index":0,"name":"look","arguments":`+args+`}}]`)
		_, got = dial(t, e).post("/v1/chat/completions", body).whole()
		require.Contains(t, got, `"name":"look","arguments":`+quoted(args))
		require.Contains(t, got, `"finish_reason":"tool_calls"`)
		_, got = dial(t, e).post("/v1/responses", body).whole()
		require.Contains(t, got, `"arguments":`+quoted(args))
		_, got = dial(t, e).post("/v1/messages", `{"model":"demo","stream":`+stream+`,`+hi+
			`,"tools":[{"name":"look","input_schema":{"type":"object","properties":{},"required":["where"]}}]}`).whole()
		require.Contains(t, got, `"name":"look"`)
		require.Contains(t, got, `"stop_reason":"tool_use"`)
		_, got = dial(t, e).post("/v1/chat/completions", strings.Replace(body, `"role":"user"`, `"role":"tool"`, 1)).whole()
		require.NotContains(t, got, "tool_calls")
	}
}

func TestEmbeddingsComeFromTheText(t *testing.T) {
	e := StartTest(t, Config{})
	_, body := dial(t, e).post("/api/embed", `{"model":"demo-embed","input":["a","b","a"]}`).whole()
	require.Equal(t, gjson.Get(body, "embeddings.0").Raw, gjson.Get(body, "embeddings.2").Raw)
	require.NotEqual(t, gjson.Get(body, "embeddings.0").Raw, gjson.Get(body, "embeddings.1").Raw)
	_, old := dial(t, e).post("/api/embeddings", `{"model":"demo-embed","prompt":"a"}`).whole()
	require.Equal(t, gjson.Get(body, "embeddings.0").Raw, gjson.Get(old, "embedding").Raw)
	_, v1 := dial(t, e).post("/v1/embeddings", `{"model":"demo-embed","input":"a"}`).whole()
	require.Equal(t, gjson.Get(body, "embeddings.0").Raw, gjson.Get(v1, "data.0.embedding").Raw)
	status, _ := dial(t, e).post("/api/embeddings", `{"model":"demo","prompt":"a"}`).whole()
	require.Equal(t, 500, status)
}

func TestTheLastLineOfAGenerateCarriesAllTokens(t *testing.T) {
	e := StartTest(t, Config{Pace: Pace{Chunks: 30_000, Joined: true}})
	_, body := dial(t, e).post("/api/generate", `{"model":"demo","prompt":"hi"}`).whole()
	line := body[strings.LastIndexByte(strings.TrimSuffix(body, "\n"), '\n')+1:]
	require.Greater(t, len(line), 64<<10)
	require.Len(t, gjson.Get(line, "context").Array(), 30_003)
}
