// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"nvpair/tests/engine"
	"nvpair/tests/harness"
)

// goneOnItsOwn bounds the life of a connection that gets nowhere: 5 s to its first byte, then 10 s to the end of a head.
const goneOnItsOwn = 20 * time.Second

// saidTo sends bytes to the facade and returns what comes back until the facade closes, or a moment after an answer.
func saidTo(t *testing.T, h *harness.Host, text string) string {
	t.Helper()
	conn, err := h.Dial("tcp", "127.0.0.1:11434")
	require.NoError(t, err)
	defer conn.Close()
	_, _ = io.WriteString(conn, text) // it may be refused half-way
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(goneOnItsOwn)))
	in := bufio.NewReader(conn)
	first, err := in.ReadString('\n')
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		require.FailNow(t, "neither answer nor end", "%.60q", text)
	}
	return strings.TrimSpace(first)
}

func TestStrangeConnectionsAreTurnedAwayAndTheNextRequestIsServed(t *testing.T) {
	t.Parallel()
	n := startInference(t, engine.Config{})
	const ask = `{"model":"demo","messages":[{"role":"user","content":"x"}]}`
	post := func(host string) string {
		return fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", host, len(ask), ask)
	}
	n.engine.ResetWitness()
	for _, tt := range []struct{ name, text, want string }{
		{"another site", post("evil.example"), "HTTP/1.1 421 Misdirected Request"},
		{"another site with the port", post("evil.example:11434"), "HTTP/1.1 421 Misdirected Request"},
		{"no site", post(""), "HTTP/1.1 421 Misdirected Request"},
		{"header bomb", "GET / HTTP/1.1\r\nHost: localhost\r\nX-Bomb: " + strings.Repeat("x", 300<<10) + "\r\n\r\n",
			"HTTP/1.1 431 Request Header Fields Too Large"},
		{"many headers", "GET / HTTP/1.1\r\nHost: localhost\r\n" + strings.Repeat("X-Bomb: x\r\n", 30<<10) + "\r\n",
			"HTTP/1.1 431 Request Header Fields Too Large"},
		{"TLS", "\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + strings.Repeat("\x00", 160), ""},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", "HTTP/1.1 421 Misdirected Request"},
		{"bytes", "\x00\x01\x02\xff\xfe\r\n\r\n", "HTTP/1.1 400 Bad Request"},
		{"two lengths", "POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
			"HTTP/1.1 400 Bad Request"},
		{"obsolete coding", "POST /api/chat HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: identity, chunked\r\n\r\n",
			"HTTP/1.1 501 Not Implemented"},
		{"nothing", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, saidTo(t, n.h, tt.text))
			n.requireServed(11434)
		})
	}
	t.Cleanup(func() { // when all of them are done
		for _, r := range n.engine.Witness().Requests {
			if r.Method == http.MethodPost && r.Status != http.StatusOK {
				t.Errorf("the engine got something strange: %s", r.Head)
			}
		}
	})
}

// With one engine its own rules for pages hold; over several engines a list for a page is refused.
func TestPagesAreServedAsTheEngineHasIt(t *testing.T) {
	t.Parallel()
	n := startInference(t, engine.Config{Models: []engine.Model{{Name: "demo:latest"}}})
	ask := func(method, path, origin string) (int, string, http.Header) {
		req, err := http.NewRequest(method, "http://127.0.0.1:11434"+path,
			strings.NewReader(`{"model":"demo","messages":[{"role":"user","content":"x"}]}`))
		require.NoError(t, err)
		if origin != "" {
			req.Header.Set("Origin", origin)
		}
		resp, err := n.http.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(raw), resp.Header
	}
	for _, path := range []string{"/v1/models", "/v1/chat/completions"} {
		method := map[bool]string{true: http.MethodGet, false: http.MethodPost}[path == "/v1/models"]
		status, body, header := ask(method, path, "http://localhost:3000")
		require.Equal(t, http.StatusOK, status, body)
		require.Equal(t, []string{"http://localhost:3000"}, header["Access-Control-Allow-Origin"], path)
		status, body, header = ask(method, path, "https://evil.example")
		require.Equal(t, http.StatusForbidden, status, "%s %s", path, body)
		require.Empty(t, header["Access-Control-Allow-Origin"], path)
	}
	n.addNode("second", engine.Config{Models: []engine.Model{{Name: "demo:latest"}}})
	status, body, header := ask(http.MethodGet, "/v1/models", "http://localhost:3000")
	require.Equal(t, http.StatusOK, status, body)
	require.Equal(t, []string{"http://localhost:3000"}, header["Access-Control-Allow-Origin"], "both permit it")
	status, body, header = ask(http.MethodGet, "/v1/models", "https://evil.example")
	require.Equal(t, http.StatusForbidden, status, body)
	require.Contains(t, body, "an engine denied access to the model list")
	require.Empty(t, header["Access-Control-Allow-Origin"])
	status, body, _ = ask(http.MethodGet, "/v1/models", "")
	require.Equal(t, http.StatusOK, status, body)
}

func TestThousandsOfConnectionsThatDoNothingHoldUpNobody(t *testing.T) {
	t.Parallel()
	n := startInference(t, engine.Config{})
	proxy := pidOf(t, n.c, "nvpair-proxy")
	before := descriptors(t, proxy)
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	slow, idle := 500, 2_000
	if *soakWanted {
		slow, idle = 2_000, 10_000 // to open so many takes long
	}
	if room := int(min(limit.Max, 1<<20)) * 2 / 3; slow+idle > room {
		slow, idle = room/6, room-room/6
	}
	t.Logf("%d connections with half a head, %d between two requests", slow, idle)
	half := n.dialMany(slow, "GET / HTTP/1.1\r\nHost: localhost\r\nX-Half: ")
	kept := n.dialMany(idle, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n") // one answer, without an engine
	for _, conn := range kept {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(inferenceWithin)))
		_, err := conn.Read(make([]byte, 1))
		require.NoError(t, err)
	}
	start := time.Now()
	n.requireServed(11434)
	t.Logf("served in %v", time.Since(start))
	require.GreaterOrEqual(t, descriptors(t, proxy)-before, idle-10, "they are still there")

	for _, conn := range kept {
		require.NoError(t, conn.Close())
	}
	for _, conn := range half { // these it ends itself
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(goneOnItsOwn)))
		_, err := io.Copy(io.Discard, conn)
		require.NotErrorIs(t, err, unix.ETIMEDOUT)
		if ne, ok := err.(net.Error); ok {
			require.False(t, ne.Timeout(), "a connection with half a head stays")
		}
	}
	harness.Eventually(t, inferenceWithin, "the proxy has let go of them", func() bool {
		return descriptors(t, proxy) < before+50
	})
	n.requireServed(11434)
}

// dialMany opens connections to the facade and says the same on each.
func (n *inference) dialMany(count int, text string) []net.Conn {
	n.t.Helper()
	conns := make([]net.Conn, 0, count)
	n.t.Cleanup(func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	})
	require.NoError(n.t, n.h.Do(func() error {
		dialer := net.Dialer{FallbackDelay: -1, Timeout: inferenceWithin}
		for range count {
			conn, err := dialer.Dial("tcp", "127.0.0.1:11434")
			if err != nil {
				return err
			}
			conns = append(conns, conn)
			if _, err := io.WriteString(conn, text); err != nil {
				return err
			}
		}
		return nil
	}))
	return conns
}
