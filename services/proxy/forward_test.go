// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/shared/facade"
)

// wire is an engine that keeps the requests it gets as they came, and gives every
// one the same answer, byte for byte.
type wire struct {
	port int
	got  chan string // heads and bodies
}

// rawEngine starts a wire. Its answer must have a framing that ends it.
func rawEngine(t *testing.T, answer string) *wire {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	e := &wire{port: ln.Addr().(*net.TCPAddr).Port, got: make(chan string, 100)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			e.one(c, answer)
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	return e
}

// one serves one request of a connection.
func (e *wire) one(c net.Conn, answer string) {
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	head := ""
	for !strings.HasSuffix(head, "\r\n\r\n") {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		head += line
	}
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head)))
	if err != nil {
		e.got <- head
		return
	}
	if req.Method == http.MethodGet && req.URL.Path == "/v1/models" { // the proxy's own question
		_, _ = io.WriteString(c, done)
		return
	}
	body := ""
	if req.ContentLength > 0 {
		buf := make([]byte, req.ContentLength)
		_, _ = io.ReadFull(in, buf)
		body = string(buf)
	}
	for req.ContentLength < 0 && !strings.HasSuffix(body, "0\r\n\r\n") {
		line, err := in.ReadString('\n')
		if err != nil {
			break
		}
		body += line
	}
	_, _ = io.WriteString(c, answer)
	e.got <- head + body
}

// own makes a wire this machine's own engine.
func (e *wire) own(r *rig) {
	r.own(e.port)
}

const done = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"

func TestARequestReachesTheEngineAsItWas(t *testing.T) { // PX-70
	for name, path := range map[string]string{"inference": "/api/chat", "control": "/api/pull"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			e := rawEngine(t, done)
			r.addAddress("a", e.port, "m")
			e.own(r)
			c := r.dial()
			c.say("POST " + path + "?a=%20b&c=/../d;e HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15\r\n" +
				"Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nProxy-Connection: x\r\n" +
				"Proxy-Authorization: secret\r\nAuthorization: Bearer k\r\nCookie: a=b\r\nX-Forwarded-For: 192.0.2.1\r\n" +
				"X-Twice: 1\r\nX-Twice: 2\r\nAccept-Encoding: br\r\n\r\n" + `{"model" : "m"}`)
			resp, body := c.answer("POST")
			require.Equal(t, 200, resp.StatusCode)
			require.Equal(t, "{}", body)
			head, sent, _ := strings.Cut(<-e.got, "\r\n\r\n")
			require.Equal(t, `{"model" : "m"}`, sent)
			lines := slices.DeleteFunc(strings.Split(head, "\r\n"), func(line string) bool {
				return strings.HasPrefix(line, hopHeader+": ") // on the way to other nodes only, ours to say
			})
			require.Equal(t, "POST "+path+"?a=%20b&c=/../d;e HTTP/1.1", lines[0])
			require.ElementsMatch(t, []string{
				fmt.Sprintf("Host: 127.0.0.1:%d", e.port), "Content-Length: 15", "Authorization: Bearer k", "Cookie: a=b",
				"X-Forwarded-For: 192.0.2.1", "X-Forwarded-For: 127.0.0.1", "X-Twice: 1", "X-Twice: 2", "Accept-Encoding: br",
			}, lines[1:])
		})
	}
}

func TestAClientOverIPv6IsNamedToo(t *testing.T) {
	r := newRig(t)
	e := rawEngine(t, done)
	e.own(r)
	c, err := net.Dial("tcp", fmt.Sprintf("[::1]:%d", r.port))
	if err != nil {
		t.Skip("no IPv6 here")
	}
	defer func() { _ = c.Close() }()
	_, err = io.WriteString(c, "GET /api/version HTTP/1.1\r\nHost: [::1]\r\n\r\n")
	require.NoError(t, err)
	require.Contains(t, <-e.got, "\r\nX-Forwarded-For: ::1\r\n")
	_, _ = http.ReadResponse(bufio.NewReader(c), nil)
}

func TestAnAnswerReachesTheClientAsItWas(t *testing.T) { // PX-71
	for name, path := range map[string]string{"inference": "/api/chat", "control": "/api/pull"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			e := rawEngine(t, "HTTP/1.1 200 Fine\r\nContent-Length: 6\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\n"+
				"Access-Control-Allow-Origin: *\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\nX-Pair-Node: forged\r\nServer: e\r\n\r\n<html>")
			r.addAddress("a", e.port, "m")
			if name == "control" {
				e.own(r)
			}
			c := r.dial()
			c.say("POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n\r\n" + `{"model":"m"}`)
			resp, body := c.answer("POST")
			require.Equal(t, "<html>", body)
			want := http.Header{
				"Content-Length": {"6"}, "Access-Control-Allow-Origin": {"*"}, "Set-Cookie": {"a=b", "c=d"}, "Server": {"e"},
			}
			if name == "control" {
				want["X-Pair-Node"] = []string{"self"} // DEC-45: not for nodes given by address, whatever they say
			}
			require.Equal(t, want, resp.Header, "no date and no content type is made up")
		})
	}
}

func TestTrailersArePassedOn(t *testing.T) {
	r := newRig(t)
	rawEngine(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Sum\r\n\r\n2\r\nok\r\n0\r\nSum: 7\r\n\r\n").own(r)
	c := r.dial()
	c.say("POST /api/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
	resp, body := c.answer("POST")
	require.Equal(t, "ok", body)
	require.Equal(t, "7", resp.Trailer.Get("Sum"))
}

func TestAHeadIsAnsweredWithoutABody(t *testing.T) {
	r := newRig(t)
	rawEngine(t, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\nConnection: close\r\n\r\n").own(r)
	c := r.dial()
	for range 2 {
		c.say("HEAD /api/version HTTP/1.1\r\nHost: localhost\r\n\r\n")
		resp, body := c.answer("HEAD")
		require.Equal(t, "99", resp.Header.Get("Content-Length"))
		require.Empty(t, body)
	}
}

// A head whose body comes late is passed on at once (PX-73).
func TestAControlAnswersHeadDoesNotWaitForItsBody(t *testing.T) {
	r := newRig(t)
	release := make(chan struct{})
	r.ownEngine(fakeEngine(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		w.(http.Flusher).Flush()
		<-release
		_, _ = io.WriteString(w, "late")
	}))
	c := r.dial()
	c.say("POST /api/pull HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
	line, err := c.in.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 202 Accepted\r\n", line)
	close(release)
	rest := ""
	for !strings.Contains(rest, "late") {
		line, err := c.in.ReadString('\n')
		require.NoError(t, err)
		rest += line
	}
}

func TestUnusualTargetsReachNobodyElse(t *testing.T) {
	r := newRig(t)
	e := rawEngine(t, done)
	e.own(r)
	for _, tt := range []struct {
		request string
		status  int
		line    string // of the request that the engine gets, if it gets one
	}{
		{"GET http://localhost:9/api/version?x=y HTTP/1.1\r\nHost: evil.example", 200, "GET /api/version?x=y HTTP/1.1"},
		{"GET http://evil.example/api/version HTTP/1.1\r\nHost: localhost", 421, ""},
		{"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443", 421, ""},
		{"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost", 421, ""},
		{"CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: 127.0.0.1:1", 200, "CONNECT / HTTP/1.1"}, // an answer, not a tunnel
		{"GET //evil.example/x HTTP/1.1\r\nHost: localhost", 200, "GET //evil.example/x HTTP/1.1"},
		{"GET /a%2f..%2fb HTTP/1.1\r\nHost: localhost", 200, "GET /a%2f..%2fb HTTP/1.1"},
		{"GET /%0d%0aX:%20y HTTP/1.1\r\nHost: localhost", 200, "GET /%0d%0aX:%20y HTTP/1.1"},
		{"OPTIONS * HTTP/1.1\r\nHost: localhost", 200, "OPTIONS * HTTP/1.1"},
		{"OPTIONS * HTTP/1.1\r\nHost: evil.example", 421, ""},
		{"GET /x HTTP/1.0\r\nHost: localhost", 200, "GET /x HTTP/1.1"},
		{"GET /x HTTP/1.0", 421, ""},
		{"GET /x HTTP/1.1", 400, ""},
		{"GET /x HTTP/1.1\r\nHost: localhost\r\nHost: localhost", 400, ""},
		{"GET /x HTTP/1.1\r\nHost: localhost\r\nX: a\rb", 400, ""},
		{"GET /x\rb HTTP/1.1\r\nHost: localhost", 400, ""},
		{"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2", 400, ""},
		{"POST /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked", 501, ""},
	} {
		c := r.dial()
		c.say(tt.request + "\r\n\r\n")
		resp, err := http.ReadResponse(c.in, nil)
		require.NoError(t, err, tt.request)
		require.Equal(t, tt.status, resp.StatusCode, tt.request)
		if tt.line != "" {
			line, _, _ := strings.Cut(<-e.got, "\r\n")
			require.Equal(t, tt.line, line)
		}
		_ = c.Close()
	}
	require.Empty(t, e.got)
}

func TestWhatReachesTheEngineHasOneFraming(t *testing.T) { // DEC-134
	r := newRig(t)
	e := rawEngine(t, done)
	r.addAddress("a", e.port, "m")
	e.own(r)
	for path, want := range map[string]string{"/api/chat": "Content-Length: 13", "/api/pull": "Transfer-Encoding: chunked"} {
		c := r.dial()
		c.say("POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" +
			"d\r\n" + `{"model":"m"}` + "\r\n0\r\n\r\n")
		resp, _ := c.answer("POST")
		require.Equal(t, 200, resp.StatusCode)
		got := <-e.got
		require.Equal(t, 1, strings.Count(got, "Content-Length")+strings.Count(got, "Transfer-Encoding"), got)
		require.Contains(t, got, want)
		require.Contains(t, got, `{"model":"m"}`)
	}
}

func TestAHostileEngineCannotBreakTheProxysAnswer(t *testing.T) {
	for name, answer := range map[string]string{
		"two lengths":    "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\nxxxxx",
		"unasked switch": "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nevil",
		"status zero":    "HTTP/1.1 000 Zero\r\nContent-Length: 0\r\n\r\n",
		"no HTTP":        "evil",
		"endless 1xx":    strings.Repeat("HTTP/1.1 103 Early\r\n\r\n", 60_000),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRigWith(t, quick)
			e := rawEngine(t, answer)
			r.addAddress("a", e.port, "m")
			e.own(r)
			for _, path := range []string{"/api/chat", "/api/pull"} {
				c := r.dial()
				c.say("POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n\r\n" + `{"model":"m"}`)
				resp, body := c.answer("POST")
				require.Equal(t, http.StatusBadGateway, resp.StatusCode, body)
				require.Contains(t, body, "upstream error: ")
			}
		})
	}
}

func TestAReadThatNamesAModelGoesToAnOwner(t *testing.T) { // DEC-9, DEC-40
	r := newRig(t)
	own, other := rawEngine(t, done), rawEngine(t, done)
	own.own(r)
	r.addAddress("z", other.port, "peers/model")
	for _, request := range []string{
		"GET /v1/models/peers/model HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET /v1/models/peers%2Fmodel HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"POST /api/show HTTP/1.1\r\nHost: localhost\r\nContent-Length: 23\r\n\r\n" + `{"model":"Peers/Model"}`,
	} {
		c := r.dial()
		c.say(request)
		_, _ = c.answer("GET")
		line, _, _ := strings.Cut(request, "\r\n")
		require.True(t, strings.HasPrefix(<-other.got, line), line)
	}
	for _, request := range []string{
		"GET /v1/models/unknown HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET /api/ps HTTP/1.1\r\nHost: localhost\r\n\r\n",
	} {
		c := r.dial()
		c.say(request)
		_, _ = c.answer("GET")
		line, _, _ := strings.Cut(request, "\r\n")
		require.True(t, strings.HasPrefix(<-own.got, line), line)
	}
}

func TestAWebSocketIsATunnelToTheOwnEngine(t *testing.T) {
	r := newRig(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	heads := make(chan string, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			in := bufio.NewReader(c)
			req, err := http.ReadRequest(in)
			if err != nil || req.Header.Get("Upgrade") == "" { // the question for the models
				_ = c.Close()
				continue
			}
			heads <- req.Header.Get("Upgrade") + " " + req.Header.Get("Connection") + " " + req.Header.Get("Sec-WebSocket-Key")
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s\r\n\r\nhello,")
			_, _ = io.Copy(c, in)
			_ = c.Close()
			return
		}
	}()
	r.own(ln.Addr().(*net.TCPAddr).Port)
	c := r.dial()
	c.say("GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\nfirst,")
	resp, err := http.ReadResponse(c.in, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	require.Equal(t, "websocket", resp.Header.Get("Upgrade"))
	require.Equal(t, "Upgrade", resp.Header.Get("Connection"))
	require.Equal(t, "s", resp.Header.Get("Sec-WebSocket-Accept"))
	require.Equal(t, "websocket Upgrade k", <-heads)
	c.say("second")
	buf := make([]byte, len("hello,first,second"))
	_, err = io.ReadFull(c.in, buf)
	require.NoError(t, err)
	require.Equal(t, "hello,first,second", string(buf))
	require.NoError(t, c.Close())
	<-ended // the engine sees the end
	require.Equal(t, http.StatusSwitchingProtocols, r.ended(1).Status)
}

// A tunnel does not outlive the worker, though its client and its engine would.
func TestATunnelEndsWithTheWorker(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	engine := make(chan net.Conn, 1)
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			req, err := http.ReadRequest(bufio.NewReader(conn))
			if err != nil || req.Header.Get("Upgrade") == "" { // the question for the models
				_ = conn.Close()
				continue
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			engine <- conn
			return
		}
	}()
	r := newRig(t)
	r.own(ln.Addr().(*net.TCPAddr).Port)
	c := r.dial()
	c.say("GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
	_, err = http.ReadResponse(c.in, nil)
	require.NoError(t, err)
	conn := <-engine
	defer func() { _ = conn.Close() }()
	r.stop()
	_, err = io.ReadAll(c.in)
	require.NoError(t, err, "the client sees the end")
	_, err = io.ReadAll(conn)
	require.NoError(t, err, "so does the engine")
}

func TestOnlyTheOwnEngineIsUpgraded(t *testing.T) { // DEC-143
	r := newRig(t)
	r.call("ollama:node/add-manual", facade.Node{ID: "a", Port: freePort(t), Addresses: []string{"127.0.0.1"}, Models: []string{"m"}})
	c := r.dial()
	c.say("GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	resp, body := c.answer("GET")
	require.Equal(t, http.StatusBadGateway, resp.StatusCode)
	require.Contains(t, body, "this node has no Ollama engine running")
}
