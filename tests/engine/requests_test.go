// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestExpectIsObeyedIgnoredOrAnsweredEarly(t *testing.T) {
	head := fmt.Sprintf("POST /api/chat HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(chatWhole))
	e := StartTest(t, Config{})
	c := dial(t, e).send(head)
	res, err := c.response()
	require.NoError(t, err)
	require.Equal(t, 100, res.StatusCode)
	status, _ := c.send(chatWhole).whole()
	require.Equal(t, 200, status)

	inject(t, e, Fault{Kind: KindExpectIgnored})
	c = dial(t, e).send(head)
	c.silent()
	status, _ = c.send(chatWhole).whole()
	require.Equal(t, 200, status)

	inject(t, e, Fault{Kind: KindStatus, Status: 503, At: AtHead, Close: true})
	status, _ = dial(t, e).send(head).whole()
	require.Equal(t, 503, status)
	last := ended(t, e, 3)[2]
	require.False(t, last.BodyDone)
	require.Empty(t, last.BodyHash)
}

func TestHeadsAndBodiesThatAreTooLong(t *testing.T) {
	for dialect, want := range map[Dialect]int{Ollama: 431, LMStudio: 431, LlamaCpp: 400, VLLM: 400} {
		e := StartTest(t, Config{Dialect: dialect})
		c := dial(t, e)
		go func() { // ends when the connection does
			_, _ = io.WriteString(c.nc, "GET / HTTP/1.1\r\nX: "+strings.Repeat("x", 2<<20)+"\r\n\r\n")
		}()
		status, body := c.whole()
		require.Equal(t, want, status, dialect)
		require.Empty(t, body)
	}
	e := StartTest(t, Config{Dialect: LlamaCpp})
	c := dial(t, e).send(fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n", maxBody+1))
	status, body := c.whole()
	require.Equal(t, 413, status)
	require.Empty(t, body)
}

func TestALongBodyIsTakenIn(t *testing.T) {
	e := StartTest(t, Config{Models: []Model{{Name: "demo", Context: 1 << 30}}})
	body := `{"model":"demo","stream":false,"messages":[{"role":"user","content":"` + strings.Repeat("word ", 1<<20) + `"}]}`
	status, _ := dial(t, e).post("/api/chat", body).whole()
	require.Equal(t, 200, status)
	require.Equal(t, int64(len(body)), ended(t, e, 1)[0].BodyBytes)
}

func TestNoHTTPIsABadRequest(t *testing.T) {
	for _, head := range []string{"hello\r\n\r\n", "GET / HTTP/2.0\r\n\r\n", "GET / HTTP/1.1\r\nbad\r\n\r\n",
		"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", "GET / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n"} {
		status, _ := dial(t, StartTest(t, Config{})).send(head).whole()
		require.Equal(t, 400, status, head)
	}
}

func TestRequestsOfOneConnectionAreAnsweredInOrder(t *testing.T) {
	e := StartTest(t, Config{Pace: Pace{First: time.Millisecond}})
	c := dial(t, e).send("\r\n").post("/api/chat", chatWhole).post("/nope", "12345").post("/api/version", "").
		send("GET http://localhost/api/version HTTP/1.1\r\n\r\n")
	var got []int
	for range 4 {
		status, _ := c.whole()
		got = append(got, status)
	}
	require.Equal(t, []int{200, 404, 405, 200}, got)
}

func TestOldHTTPGetsABodyUpToTheEnd(t *testing.T) {
	send := fmt.Sprintf(" HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s", len(chatStream), chatStream)
	got, err := dial(t, StartTest(t, Config{})).send("POST /api/chat" + send).rest()
	require.NoError(t, err)
	require.NotContains(t, got, "Transfer-Encoding")
	require.True(t, strings.HasSuffix(got, "}\n"), got)
	stream := fmt.Sprintf(" HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s", len(chatStream)+14, chatStream[:len(chatStream)-1]+`,"stream":true}`)
	got, err = dial(t, StartTest(t, Config{Dialect: LlamaCpp})).send("POST /api/chat" + stream).rest()
	require.NoError(t, err)
	require.Contains(t, got, "Transfer-Encoding: chunked") // llama.cpp does not care
}

func TestIdleConnectionsCloseAsTheEnginesDo(t *testing.T) {
	e := StartTest(t, Config{Dialect: LMStudio, IdleTimeout: 20 * time.Millisecond})
	c := dial(t, e)
	_, _ = c.send("GET /v1/models HTTP/1.1\r\n\r\n").whole()
	_, err := c.r.Peek(1)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, 5*time.Second, StartTest(t, Config{Dialect: VLLM}).cfg.IdleTimeout)
	require.Zero(t, StartTest(t, Config{}).cfg.IdleTimeout)

	c = dial(t, StartTest(t, Config{Dialect: LlamaCpp}))
	for i := 1; ; i++ {
		res, err := c.send("GET /health HTTP/1.1\r\n\r\n").response()
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, res.Body)
		require.NoError(t, err)
		if res.Close {
			require.Equal(t, 100, i)
			return
		}
	}
}

func TestAWebSocketIsEchoed(t *testing.T) {
	c := dial(t, StartTest(t, Config{Dialect: LMStudio}))
	c.send("GET /llm HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	res, err := http.ReadResponse(c.r, nil)
	require.NoError(t, err)
	require.Equal(t, 101, res.StatusCode)
	require.Equal(t, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", res.Header.Get("Sec-WebSocket-Accept"))
	for _, n := range []int{5, 300, 70_000} {
		payload := strings.Repeat("x", n)
		c.send(string(frameHead(1, n)) + payload) // unmasked, which the echo takes, too
		x := exchange{c: &conn{br: c.r}}
		op, got, err := x.readFrame()
		require.NoError(t, err)
		require.Equal(t, byte(1), op)
		require.Equal(t, payload, string(got))
	}
	c.send("\x88\x82\x00\x00\x00\x00\x03\xe8")
	rest, err := bufio.NewReader(c.r).ReadString(0)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, "\x88\x02\x03\xe8", rest)
}

func TestManyNamesAreOneModel(t *testing.T) {
	e := StartTest(t, Config{Models: []Model{{Name: "tiny"}}})
	for _, name := range []string{"tiny", "TINY", "tiny:Latest", " tiny", "library/tiny", "registry.ollama.ai/library/tiny:latest",
		"tiny:local"} {
		status, body := dial(t, e).post("/api/chat", `{"MODEL":"`+name+`","stream":false,`+hi+`}`).whole()
		require.Equal(t, 200, status, name)
		require.Contains(t, body, `"model":"`+name+`"`) // as the client spells it
	}
	for _, name := range []string{"tiny@sha256:00", "tiny:"} {
		status, _ := dial(t, e).post("/api/chat", `{"model":"`+name+`",`+hi+`}`).whole()
		require.Equal(t, 400, status, name)
	}
}

func TestOllamaAllowsLocalHostsAndOriginsOnly(t *testing.T) {
	e := StartTest(t, Config{Origins: []string{"https://mine.example"}})
	for headers, want := range map[string]int{
		"Host: localhost": 200, "Host: a.local:1": 200, "Host: 10.1.2.3": 200, "Host: [::1]:1": 200, "Host: 8.8.8.8": 403,
		"Origin: https://127.0.0.1:9": 200, "Origin: app://x": 200, "Origin: https://mine.example": 200, "Origin: null": 403,
		"Origin: http://[::1]": 403, "Origin: http://192.168.1.1": 403, "Origin: http://localhost.evil.example": 403,
		"Host: x.internal | Origin: http://x.internal": 200,
	} {
		raw := string(exchangeRaw(t, e, "GET /api/version | "+headers, ""))
		require.True(t, strings.HasPrefix(raw, fmt.Sprintf("HTTP/1.1 %d ", want)), "%s: %s", headers, raw)
	}
	all := StartTest(t, Config{Origins: []string{"*"}})
	raw := string(exchangeRaw(t, all, "GET /api/version | Origin: https://evil.example", ""))
	require.Contains(t, raw, "Access-Control-Allow-Origin: *\r\n")
	require.NotContains(t, raw, "Vary")
}
