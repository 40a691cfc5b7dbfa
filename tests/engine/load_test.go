// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const generateLoad = `{"model":"demo"}`

func psNames(t *testing.T, e *Engine) string {
	t.Helper()
	_, body := dial(t, e).send("GET /api/ps HTTP/1.1\r\n\r\n").whole()
	return body
}

func TestExcessRequestsWaitWithoutAByte(t *testing.T) {
	e := StartTest(t, Config{Dialect: LlamaCpp, Slots: 1, QueueLimit: 1})
	inject(t, e, Fault{Kind: KindHang, Times: 1, At: AtMidStream})
	body := `{"stream":true,` + hi + `}`
	first := dial(t, e).post("/v1/chat/completions", body)
	_, err := first.response()
	require.NoError(t, err)
	second := dial(t, e).post("/v1/chat/completions", body)
	await(t, e, "second request", func(r Report) bool { return r.Open == 2 && r.Requests[1].BodyDone })
	second.silent()
	status, _ := dial(t, e).post("/v1/chat/completions", body).whole()
	require.Equal(t, 503, status)
	_, slots := dial(t, e).send("GET /slots HTTP/1.1\r\n\r\n").whole()
	require.Equal(t, 1, strings.Count(slots, `"is_processing":true`))
	require.NoError(t, first.nc.Close()) // frees the slot
	status, _ = second.whole()
	require.Equal(t, 200, status)
}

func TestAWaitingClientThatLeavesGivesUpItsPlace(t *testing.T) {
	e := StartTest(t, Config{Slots: 1, Pace: Pace{Delay: time.Hour}})
	first := dial(t, e).post("/api/chat", `{"model":"demo",`+hi+`}`)
	_, err := first.response() // it has begun, so it holds the slot
	require.NoError(t, err)
	second := dial(t, e).post("/api/chat", chatWhole)
	await(t, e, "second request", func(r Report) bool { return r.Open == 2 && r.Requests[1].BodyDone })
	require.NoError(t, second.nc.Close())
	await(t, e, "its end", func(r Report) bool { return r.Open == 1 })
	e.SetPace(Pace{})
	require.NoError(t, first.nc.Close())
	status, _ := dial(t, e).post("/api/chat", chatWhole).whole()
	require.Equal(t, 200, status)
}

func TestAGhostKeepsItsSlot(t *testing.T) {
	e := StartTest(t, Config{Slots: 1, Ghost: 40 * time.Millisecond})
	inject(t, e, Fault{Kind: KindHang, Times: 1})
	first := dial(t, e).post("/api/chat", chatWhole)
	await(t, e, "first request", func(r Report) bool { return r.Open == 1 && r.Requests[0].BodyDone })
	begin := time.Now()
	require.NoError(t, first.nc.Close())
	ended(t, e, 1)
	_, _ = dial(t, e).post("/api/chat", chatWhole).whole()
	require.GreaterOrEqual(t, time.Since(begin), 40*time.Millisecond)
}

func TestVLLMsClientsWaitWithAHeadInTheirHands(t *testing.T) {
	e := StartTest(t, Config{Dialect: VLLM, Slots: 1, Models: []Model{{Name: "demo"}}})
	inject(t, e, Fault{Kind: KindHang, Times: 1, At: AtMidStream})
	body := `{"model":"demo","stream":true,` + hi + `}`
	dial(t, e).post("/v1/chat/completions", body)
	await(t, e, "first request", func(r Report) bool { return r.Open == 1 && r.Requests[0].SentBytes > 200 })
	second := dial(t, e).post("/v1/chat/completions", body)
	res, err := second.response()
	require.NoError(t, err)
	require.Equal(t, 200, res.StatusCode)
	second.silent()
}

func TestALoadBlocksAndShowsOnlyOnceItIsDone(t *testing.T) {
	e := StartTest(t, Config{LoadDelay: time.Hour})
	c := dial(t, e).post("/api/generate", generateLoad)
	c.silent()
	require.JSONEq(t, `{"models":[]}`, psNames(t, e))

	e = StartTest(t, Config{LoadDelay: 50 * time.Millisecond})
	begin := time.Now()
	_, body := dial(t, e).post("/api/generate", generateLoad).whole()
	require.Contains(t, body, `"done_reason":"load"`)
	require.GreaterOrEqual(t, time.Since(begin), 50*time.Millisecond)
	require.Contains(t, psNames(t, e), "demo:latest")
}

func TestKeepAliveDecidesWhenAModelGoes(t *testing.T) {
	e := StartTest(t, Config{})
	for _, keep := range []string{`0`, `"0s"`, `"1ns"`, `0.000000001`} {
		_, _ = dial(t, e).post("/api/chat", `{"model":"demo","stream":false,"keep_alive":`+keep+`,`+hi+`}`).whole()
		ended(t, e, 1)
		require.JSONEq(t, `{"models":[]}`, psNames(t, e), keep)
	}
	_, _ = dial(t, e).post("/api/generate", `{"model":"demo","keep_alive":"-1s"}`).whole()
	require.Contains(t, psNames(t, e), `"expires_at":"2319-`)
	_, body := dial(t, e).post("/api/generate", `{"model":"demo","keep_alive":0}`).whole()
	require.Contains(t, body, `"done_reason":"unload"`)
	ended(t, e, 1)
	require.JSONEq(t, `{"models":[]}`, psNames(t, e))
}

func TestAnotherContextLoadsTheModelAnew(t *testing.T) {
	e := StartTest(t, Config{Pace: Pace{Delay: time.Hour}})
	first := dial(t, e).post("/api/chat", `{"model":"demo",`+hi+`}`)
	_, err := first.response() // it has begun, so it holds the model
	require.NoError(t, err)
	second := dial(t, e).post("/api/generate", `{"model":"demo","options":{"num_ctx":512}}`)
	await(t, e, "second request", func(r Report) bool { return r.Open == 2 && r.Requests[1].BodyDone })
	second.silent() // until the first one is done
	require.NoError(t, first.nc.Close())
	_, _ = second.whole()
	ps := psNames(t, e)
	require.Contains(t, ps, `"context_length":512`)
	require.Equal(t, 1, strings.Count(ps, `"name"`))
}

func TestADeletedModelStaysLoaded(t *testing.T) {
	e := StartTest(t, Config{})
	_, _ = dial(t, e).post("/api/generate", generateLoad).whole()
	exchangeRaw(t, e, "DELETE /api/delete", generateLoad)
	require.Contains(t, psNames(t, e), "demo:latest")
	status, _ := dial(t, e).post("/api/chat", chatWhole).whole()
	require.Equal(t, 404, status)
}

func TestAnEvictionWaitsOrCuts(t *testing.T) {
	models := []Model{{Name: "a"}, {Name: "b"}}
	for _, cuts := range []bool{false, true} {
		e := StartTest(t, Config{Models: models, MaxLoaded: 1, EvictCuts: cuts, Pace: Pace{Delay: time.Hour}})
		first := dial(t, e).post("/api/chat", `{"model":"a",`+hi+`}`)
		res, err := first.response()
		require.NoError(t, err)
		second := dial(t, e).post("/api/chat", `{"model":"b",`+hi+`}`)
		if !cuts {
			await(t, e, "second request", func(r Report) bool { return r.Open == 2 && r.Requests[1].BodyDone })
			second.silent()
			require.NoError(t, first.nc.Close())
		}
		got, err := second.response()
		require.NoError(t, err)
		require.Equal(t, 200, got.StatusCode)
		if cuts {
			b := make([]byte, 1<<16)
			n := 0
			for err == nil {
				var k int
				k, err = res.Body.Read(b[n:])
				n += k
			}
			require.Contains(t, string(b[:n]), `{"error":"an error was encountered while running the model`)
		}
	}
}

func TestARoutersLoadAnswersBeforeItIsDone(t *testing.T) {
	e := StartTest(t, Config{Dialect: LlamaCppRouter, LoadDelay: time.Hour, Models: []Model{{Name: "a"}}})
	status, _ := dial(t, e).post("/models/load", `{"model":"a"}`).whole()
	require.Equal(t, 200, status)
	_, list := dial(t, e).send("GET /v1/models HTTP/1.1\r\n\r\n").whole()
	require.Contains(t, list, `"value":"loading"`)
}

func TestTheOnlyLoadedModelAnswersForAnyName(t *testing.T) {
	e := StartTest(t, Config{Dialect: LMStudio, OnlyAnswers: true})
	_, body := dial(t, e).post("/v1/chat/completions", `{"model":"other",`+hi+`}`).whole()
	require.Contains(t, body, `"model": "nvpair-demo/demo-1b"`)
}

func TestAListenerCanRefuseAndPause(t *testing.T) {
	e := StartTest(t, Config{})
	get := "GET /api/version HTTP/1.1\r\n\r\n"
	kept := dial(t, e)
	_, _ = kept.send(get).whole()

	require.NoError(t, e.Listen(Paused))
	waiting := dial(t, e).send(get)
	waiting.silent()
	_, _ = kept.send(get).whole()
	require.NoError(t, e.Listen(Open))
	_, _ = waiting.whole()

	require.NoError(t, e.Listen(Closed))
	status, err := dialOnce(e)
	require.Error(t, err, status)
	_, _ = kept.send(get).whole()
	require.NoError(t, e.Listen(Open))
	_, _ = dial(t, e).send(get).whole()
	require.Error(t, e.Listen("ajar"))
}
