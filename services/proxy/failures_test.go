// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// quick makes the waits between rounds short.
var quick = limits{firstBackoff: time.Millisecond}

// queuedTries is the beginning of a trace: n dispatches to a, with a pause between.
func queuedTries(n int) []string {
	trace := []string{"queued@-"}
	for i := range n {
		if i > 0 {
			trace = append(trace, "queued@-")
		}
		trace = append(trace, "queued@a")
	}
	return trace
}

// counting is an engine's handler that counts what reaches it.
func counting(n *atomic.Int32, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { n.Add(1); h(w, r) }
}

func says(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestOnlyLoopbackMayAskInPlaintext(t *testing.T) { // row 1
	for addr, want := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "[::ffff:127.0.0.1]:1": true,
		"10.0.0.1:1": false, "[fe80::1%eth0]:1": false, "[2001:db8::1]:1": false, "[::ffff:10.0.0.1]:1": false,
		"": false, "127.0.0.1": false, "localhost:1": false, "@": false, "0.0.0.0:1": false,
	} {
		if got := loopbackSource(addr); got != want {
			t.Errorf("loopbackSource(%q) = %v", addr, got)
		}
	}
	r := newRig(t)
	outside := ""
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && !ip.IP.IsLoopback() {
			outside = ip.IP.String()
		}
	}
	if outside == "" {
		t.Skip("this machine has loopback addresses only")
	}
	for _, method := range []string{"GET", "POST", "OPTIONS", "DELETE"} {
		for _, target := range []string{"/api/chat", "*"} {
			if target == "*" && method != "OPTIONS" {
				continue
			}
			c, err := net.Dial("tcp", net.JoinHostPort(outside, strconv.Itoa(r.port)))
			require.NoError(t, err)
			_, err = fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n", method, target) // the body never comes
			require.NoError(t, err)
			buf := make([]byte, 4096)
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
			n, err := c.Read(buf)
			require.NoError(t, err)
			require.Contains(t, string(buf[:n]), "403 Forbidden", "%s %s", method, target)
			_ = c.Close()
		}
	}
}

func TestHostMustNameThisMachine(t *testing.T) { // DEC-13
	f := &facadeServer{p: &proxy{allowed: map[string]bool{"mine.example": true}}}
	for host, want := range map[string]bool{
		"localhost": true, "localhost:1": true, "LocalHost:65535": true, "127.0.0.1": true, "127.8.9.10:80": true,
		"[::1]:1": true, "[::1]": true, "::1": true, "mine.example": true, "MINE.example:1": true,
		"": false, ":1": false, "evil.example": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false,
		"127.1": false, "2130706433": false, "0x7f.0.0.1": false, "0.0.0.0": false, "[::]": false, "10.0.0.1": false,
		"[::ffff:127.0.0.1]": false, "localhost:1:1": false, "a@localhost": false, "[::1%25lo]": false, "localhost.": false,
	} {
		if got := f.hostAllowed(host); got != want {
			t.Errorf("hostAllowed(%q) = %v", host, got)
		}
	}
}

func TestAProbeForAnEngineIsToldThatThisIsNone(t *testing.T) { // row 2
	r := newRig(t)
	c := r.dial()
	c.say("GET /api/version HTTP/1.1\r\nHost: localhost\r\nX-NVPAIR-Engine-Identity-Probe: 1\r\n\r\n")
	resp, body := c.answer("GET")
	require.Equal(t, http.StatusConflict, resp.StatusCode)
	require.Equal(t, `{"code":"proxy-facade","error":"the compatibility facade is not the Ollama engine"}`, body)
	require.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"))
}

func TestWithoutAnyNodeThereIsNothingToAsk(t *testing.T) { // rows 4 and 5
	r := newRig(t)
	status, body, header := r.post("/v1/chat/completions", `{"prompt":"no model"}`)
	require.Equal(t, http.StatusBadGateway, status)
	require.Contains(t, body, "no active node selected or available")
	require.Equal(t, "application/json", header.Get("Content-Type"))
	require.Equal(t, "no active node", r.ended(1).Error)

	status, body, _ = r.post("/api/chat", `{"model":"m"}`)
	require.Equal(t, http.StatusBadGateway, status)
	require.Contains(t, body, "no available node advertises the requested model")
	e := r.ended(2)
	require.Equal(t, "no node advertises requested model", e.Error)
	require.Equal(t, "2", e.ID)
	require.Empty(t, e.Target)
	require.Nil(t, e.TTFBMillis)
	require.Empty(t, r.noted("ollama:proxy/request-started"))
	require.Empty(t, r.trace())
}

func TestTheFifthAnswerStands(t *testing.T) { // row 6, PX-62, PX-96
	r := newRigWith(t, quick)
	var tries atomic.Int32
	r.addNode("a", fakeEngine(t, counting(&tries, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.Header().Set("X-Engine", "yes")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"error":"busy"}`)
	})), "m")
	status, body, header := r.post("/api/chat", `{"model":"m"}`)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, `{"error":"busy"}`, body)
	require.Equal(t, "7", header.Get("Retry-After"))
	require.Equal(t, "yes", header.Get("X-Engine"))
	require.EqualValues(t, 5, tries.Load())
	r.awaitTrace(append(queuedTries(5), "running@a", "failed@a")...)
	require.Equal(t, "upstream returned HTTP 503", *r.lastJob().Error)
}

func TestFiveFailuresOfTheTransportAreABadGateway(t *testing.T) { // row 7
	r := newRigWith(t, quick)
	r.addAddress("a", freePort(t), "m")
	status, body, _ := r.post("/api/chat", `{"model":"m"}`)
	require.Equal(t, http.StatusBadGateway, status)
	require.Contains(t, body, `{"error":"upstream error: `)
	r.awaitTrace(append(queuedTries(5), "failed@a")...)
	require.Contains(t, *r.lastJob().Error, "upstream error: ")
	require.EqualValues(t, 11, r.lastJob().Seq)
}

// Row 8: an answer without its first byte is none, however its head looks.
func TestAHeadWithoutABodyIsNoAnswer(t *testing.T) {
	r := newRigWith(t, quick)
	var tries atomic.Int32
	r.addNode("a", fakeEngine(t, counting(&tries, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})), "m")
	status, body, _ := r.post("/api/chat", `{"model":"m"}`)
	require.Equal(t, http.StatusBadGateway, status)
	require.Contains(t, body, "the engine closed the connection before its answer")
	require.EqualValues(t, 5, tries.Load())
	r.awaitTrace(append(queuedTries(5), "failed@a")...)
}

func TestTheDeadlineEndsTheRetries(t *testing.T) { // row 9
	r := newRigWith(t, limits{firstBackoff: time.Hour, retryDeadline: time.Minute}) // the wait would pass the deadline
	r.addNode("a", fakeEngine(t, answers(http.StatusInternalServerError, "broken")), "m")
	status, body, header := r.post("/v1/chat/completions", `{"model":"m"}`)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, body, "the retry deadline passed while dispatch attempts were still failing")
	require.Equal(t, "1", header.Get("Retry-After"))
	r.await("the end", func() bool { tr := r.trace(); return len(tr) > 0 && tr[len(tr)-1] == "failed@-" })
}

func TestAnOwnerThatDoesNotComeBackIsTold(t *testing.T) { // row 10
	r := newRigWith(t, limits{firstBackoff: 100 * time.Millisecond, retryDeadline: 400 * time.Millisecond})
	asked := make(chan struct{}, 5)
	r.addNode("a", fakeEngine(t, func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		w.WriteHeader(http.StatusInternalServerError)
	}), "m")
	removed := make(chan struct{})
	go func() {
		defer close(removed)
		<-asked
		r.call("ollama:node/remove-manual", map[string]string{"id": "a"})
	}()
	status, body, header := r.post("/api/chat", `{"model":"m"}`)
	<-removed
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, body, "no node advertising the requested model became available before the retry deadline")
	require.Equal(t, "1", header.Get("Retry-After"))
}

func TestAnEngineLostInMidAnswerIsACutAnswer(t *testing.T) { // row 12
	for name, tt := range map[string]struct{ path, contentType string }{
		"inference": {"/api/chat", "application/x-ndjson"},
		"control":   {"/api/pull", "application/x-ndjson"},
		"fixed":     {"/api/chat", "application/json"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.ownEngine(fakeEngine(t, func(w http.ResponseWriter, req *http.Request) {
				_, _ = io.Copy(io.Discard, req.Body)
				w.Header().Set("Content-Type", tt.contentType)
				if name == "fixed" {
					w.Header().Set("Content-Length", "1000")
				}
				_, _ = io.WriteString(w, "begin")
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}, "m"))
			resp, err := http.Post(r.url(tt.path), "application/json", strings.NewReader(`{"model":"m"}`))
			require.NoError(t, err)
			defer func() { _ = resp.Body.Close() }()
			got, err := io.ReadAll(resp.Body)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			require.Equal(t, "begin", string(got), "nothing is added")
			require.Equal(t, "upstream stream aborted mid-response", r.ended(1).Error)
		})
	}
}

func TestWhatIsRepeatedAndWhatStands(t *testing.T) { // PX-64, DEC-50, DEC-135
	const json = "application/json"
	for name, tt := range map[string]struct {
		engine http.HandlerFunc
		body   string
		tries  int32
	}{
		"404 of a model":   {says(404, json, `{"error":"model not found"}`), `{"model":"m"}`, 5},
		"404 of a route":   {says(404, "text/plain; charset=utf-8", "404 page not found"), `{"model":"m"}`, 1},
		"408":              {says(408, json, "{}"), `{"model":"m"}`, 5},
		"429":              {says(429, json, "{}"), `{"model":"m"}`, 5},
		"500":              {says(500, json, "{}"), `{"model":"m"}`, 5},
		"501":              {says(501, json, "{}"), `{"model":"m"}`, 1},
		"503":              {says(503, json, "{}"), `{"model":"m"}`, 5},
		"599":              {says(599, json, "{}"), `{"model":"m"}`, 5},
		"500, not JSON":    {says(500, json, "{}"), `{"model":"m",`, 1},
		"404, not JSON":    {says(404, json, "{}"), `{"model":"m"} trailing`, 1},
		"400":              {says(400, json, "{}"), `{"model":"m"}`, 1},
		"401":              {says(401, json, "{}"), `{"model":"m"}`, 1},
		"403":              {says(403, json, ""), `{"model":"m"}`, 1},
		"422":              {says(422, json, "{}"), `{"model":"m"}`, 1},
		"redirect":         {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Location", "/x"); w.WriteHeader(307) }, `{"model":"m"}`, 1},
		"no content":       {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, `{"model":"m"}`, 1},
		"200 and no bytes": {says(200, json, ""), `{"model":"m"}`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRigWith(t, quick)
			var tries atomic.Int32
			engine := fakeEngine(t, counting(&tries, tt.engine))
			r.addNode("a", engine, "m")
			want := httptest.NewRecorder()
			tt.engine(want, httptest.NewRequest("POST", "/", nil))
			c := r.dial()
			c.say(fmt.Sprintf("POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(tt.body), tt.body))
			resp, body := c.answer("POST")
			require.Equal(t, want.Code, resp.StatusCode)
			require.Equal(t, want.Body.String(), body)
			require.Equal(t, want.Header().Get("Location"), resp.Header.Get("Location"))
			require.Equal(t, tt.tries, tries.Load())
			r.await("a terminal event", func() bool {
				tr := r.trace()
				return slices.Contains(tr, "failed@a") || slices.Contains(tr, "completed@a")
			})
			require.Equal(t, resp.StatusCode < 300, r.lastJob().State == "completed")
		})
	}
}

func TestFiveOfManyOwnersAreTried(t *testing.T) { // PX-59
	r := newRigWith(t, quick)
	var tries atomic.Int32
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		r.addNode(id, fakeEngine(t, counting(&tries, answers(500, id))), "m")
	}
	status, body, _ := r.post("/api/chat", `{"model":"m"}`)
	require.Equal(t, 500, status)
	require.Equal(t, "e", body)
	require.EqualValues(t, 5, tries.Load())
	r.awaitTrace("queued@-", "queued@a", "queued@b", "queued@c", "queued@d", "queued@e", "running@e", "failed@e")
}

// Ollama answers so, whichever model it holds.
func TestARequestWithoutAModelIsNotRepeated(t *testing.T) {
	r := newRig(t)
	asked := make(chan struct{}, 10)
	r.addNode("a", fakeEngine(t, func(w http.ResponseWriter, req *http.Request) {
		asked <- struct{}{}
		answers(http.StatusNotFound, `{"error":"model '' not found"}`)(w, req)
	}))
	for _, body := range []string{`{}`, `{"model":null}`, `{"model":7}`, `{"options":{"model":"m"}}`} {
		status, got, _ := r.post("/api/generate", body)
		require.Equal(t, http.StatusNotFound, status)
		require.Contains(t, got, "not found")
		<-asked
		require.Empty(t, asked, "asked once")
	}
}

func TestAControlRequestIsSentOnce(t *testing.T) { // PX-63
	r := newRig(t)
	var tries atomic.Int32
	r.ownEngine(fakeEngine(t, counting(&tries, answers(500, "no"))))
	for _, path := range []string{"/api/pull", "/api/create", "/v1/audio/transcriptions", "/v1/models"} {
		tries.Store(0)
		status, body, header := r.post(path, `{"model":"m"}`)
		require.Equal(t, 500, status, path)
		require.Equal(t, "no", body)
		require.Equal(t, "self", header.Get("X-Pair-Node"))
		require.EqualValues(t, 1, tries.Load(), path)
	}
	require.Empty(t, r.trace())
}

func TestAnOwnerRefusingOnceIsAskedAgain(t *testing.T) {
	r := newRigWith(t, quick)
	var tries atomic.Int32
	r.addNode("a", fakeEngine(t, func(w http.ResponseWriter, req *http.Request) {
		if tries.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		answers(200, "fine")(w, req)
	}), "m")
	status, body, _ := r.post("/api/chat", `{"model":"m"}`)
	require.Equal(t, 200, status)
	require.Equal(t, "fine", body)
	r.awaitTrace("queued@-", "queued@a", "queued@-", "queued@a", "running@a", "completed@a")
	e := r.ended(1)
	require.Equal(t, "a", e.NodeID)
	require.NotNil(t, e.TTFBMillis)
	require.Len(t, r.noted("ollama:proxy/request-started"), 1)
}

func TestAClientThatLeavesInABackoffEndsItsJobUnplaced(t *testing.T) {
	r := newRigWith(t, limits{firstBackoff: time.Hour, retryDeadline: 10 * time.Hour})
	r.addNode("a", fakeEngine(t, answers(503, "")), "m")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url("/api/chat"), strings.NewReader(`{"model":"m"}`))
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := http.DefaultClient.Do(req)
		done <- err
	}()
	r.awaitTrace("queued@-", "queued@a", "queued@-")
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	r.awaitTrace("queued@-", "queued@a", "queued@-", "cancelled@-")
	require.Contains(t, *r.lastJob().Error, "before completion")
	require.Zero(t, r.ended(1).Status)
}

// A client that ends its half of the connection counts as gone. It must not be
// told that all is well.
func TestAHalfClosedClientGetsNoFalseSuccess(t *testing.T) {
	r := newRig(t)
	r.addNode("a", fakeEngine(t, func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		<-req.Context().Done()
	}), "m")
	c := r.dial()
	c.say("POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n\r\n" + `{"model":"m"}`)
	r.awaitTrace("queued@-", "queued@a")
	require.NoError(t, c.Conn.(*net.TCPConn).CloseWrite())
	got, err := io.ReadAll(c.in)
	require.NoError(t, err)
	require.Empty(t, string(got))
	r.awaitTrace("queued@-", "queued@a", "cancelled@a")
	require.Zero(t, r.ended(1).Status)
}

func TestAClientThatLeavesWithTheWholeAnswerWasServed(t *testing.T) { // DEC-142
	for name, tt := range map[string]struct{ path, contentType, last, length string }{
		"event stream": {"/v1/chat/completions", "text/event-stream", "data: [DONE]\n\n", ""},
		"NDJSON":       {"/api/chat", "application/x-ndjson", `{"done":true}` + "\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			left := make(chan struct{})
			r.addNode("a", fakeEngine(t, func(w http.ResponseWriter, req *http.Request) {
				_, _ = io.Copy(io.Discard, req.Body)
				w.Header().Set("Content-Type", tt.contentType)
				_, _ = io.WriteString(w, tt.last)
				w.(http.Flusher).Flush()
				<-req.Context().Done() // held open behind the terminator
				close(left)
			}), "m")
			resp, err := http.Post(r.url(tt.path), "application/json", strings.NewReader(`{"model":"m"}`))
			require.NoError(t, err)
			buf := make([]byte, len(tt.last))
			_, err = io.ReadFull(resp.Body, buf)
			require.NoError(t, err)
			_ = resp.Body.Close()
			<-left
			r.awaitTrace("queued@-", "queued@a", "running@a", "completed@a")
		})
	}
}

func TestAClientThatLeavesBeforeTheEndWasNot(t *testing.T) {
	r := newRig(t)
	left := make(chan struct{})
	r.addNode("a", fakeEngine(t, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {}\n\n")
		w.(http.Flusher).Flush()
		<-req.Context().Done()
		close(left)
	}), "m")
	c := r.dial()
	c.say("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n\r\n" + `{"model":"m"}`)
	r.awaitTrace("queued@-", "queued@a", "running@a")
	began := time.Now()
	_ = c.Close()
	<-left
	t.Logf("the engine was told after %v", time.Since(began))
	r.awaitTrace("queued@-", "queued@a", "running@a", "cancelled@a")
}

func TestAClientThatStopsReadingIsCutOff(t *testing.T) { // PX-77
	r := newRigWith(t, limits{writeTimeout: 100 * time.Millisecond})
	left := make(chan struct{})
	r.addNode("a", fakeEngine(t, func(w http.ResponseWriter, req *http.Request) {
		defer close(left)
		_, _ = io.Copy(io.Discard, req.Body)
		chunk := []byte(strings.Repeat("x", 64<<10))
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}), "m")
	c := r.dial()
	c.say("POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n\r\n" + `{"model":"m"}`)
	<-left
	r.awaitTrace("queued@-", "queued@a", "running@a", "cancelled@a")
}

// The deadline of the first answer's writes must not meet the second answer on
// the same connection.
func TestAWriteDeadlineEndsWithItsRequest(t *testing.T) {
	r := newRigWith(t, limits{writeTimeout: 50 * time.Millisecond})
	r.addNode("a", fakeEngine(t, answers(200, "fine")), "m")
	c := r.dial()
	c.say("POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n\r\n" + `{"model":"m"}`)
	_, body := c.answer("POST")
	require.Equal(t, "fine", body)
	<-time.After(100 * time.Millisecond)
	c.say("POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n\r\n" + `{"model":"n"}`)
	resp, _ := c.answer("POST")
	require.Equal(t, http.StatusBadGateway, resp.StatusCode)
}
