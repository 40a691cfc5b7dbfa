// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const mib = 1 << 20

// small makes a body of more than 1 MiB a large one.
var small = limits{replay: mib, firstBackoff: time.Millisecond}

// prompt is a JSON body of that size that names the model m, first or last.
func prompt(size int, last bool) []byte {
	start, end := `{"model":"m","prompt":"`, `"}`
	if last {
		start, end = `{"prompt":"`, `","model":"m"}`
	}
	b := make([]byte, 0, size)
	b = append(b, start...)
	b = append(b, bytes.Repeat([]byte("p"), size-len(start)-len(end))...)
	return append(b, end...)
}

// digest is an engine that answers with the sum of what it got.
func digest(w http.ResponseWriter, r *http.Request) {
	sum := sha256.New()
	n, err := io.Copy(sum, r.Body)
	if err != nil {
		return
	}
	_, _ = fmt.Fprintf(w, "%d %x", n, sum.Sum(nil))
}

func sumOf(b []byte) string { return fmt.Sprintf("%d %x", len(b), sha256.Sum256(b)) }

// send posts a body with its length, or chunked.
func (r *rig) send(path string, body []byte, chunked bool, header ...string) (int, string, http.Header) {
	r.t.Helper()
	var in io.Reader = bytes.NewReader(body)
	if chunked {
		in = struct{ io.Reader }{in}
	}
	req, err := http.NewRequest(http.MethodPost, r.url(path), in)
	require.NoError(r.t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(r.t, err)
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	return resp.StatusCode, string(raw), resp.Header
}

func TestABodyOf32MiBIsReplayed(t *testing.T) { // PX-44: inclusive
	body := prompt(32*mib, true)
	r := newRig(t)
	r.addNode("a", fakeEngine(t, answers(500, "")), "m")
	r.addNode("b", fakeEngine(t, digest), "m")
	status, got, _ := r.send("/api/chat", body, true)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, sumOf(body), got)
	r.awaitTrace("queued@-", "queued@a", "queued@b", "running@b", "completed@b")
}

func TestALargerBodyIsStreamedToOneNode(t *testing.T) { // DEC-10, DEC-41
	body := prompt(mib+1, false)
	for _, chunked := range []bool{false, true} {
		r := newRigWith(t, small)
		r.addAddress("a", freePort(t), "m") // nobody is there: nothing of the body is lost
		r.addNode("b", fakeEngine(t, digest), "m")
		status, got, _ := r.send("/api/chat", body, chunked)
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, sumOf(body), got)
		r.awaitTrace("queued@-", "queued@a", "queued@b", "running@b", "completed@b")
	}
}

func TestALargerBodyIsNotRepeated(t *testing.T) {
	body := prompt(2*mib, false)
	r := newRigWith(t, small)
	r.addNode("a", fakeEngine(t, answers(503, "busy")), "m")
	r.addNode("b", fakeEngine(t, func(http.ResponseWriter, *http.Request) { t.Error("sent twice") }), "m")
	status, got, _ := r.send("/api/chat", body, false)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "busy", got)
	r.awaitTrace("queued@-", "queued@a", "running@a", "failed@a")
}

func TestALargerBodyGoesToThePinnedNode(t *testing.T) {
	r := newRigWith(t, small)
	r.addNode("a", fakeEngine(t, func(http.ResponseWriter, *http.Request) { t.Error("reached") }), "m")
	r.addNode("b", fakeEngine(t, digest), "m")
	r.call("ollama:node/select", map[string]string{"id": "b"})
	status, _, _ := r.send("/api/chat", prompt(2*mib, false), false)
	require.Equal(t, http.StatusOK, status)
}

func TestABodyThatIsTooLargeIsRefused(t *testing.T) { // row 3
	r := newRigWith(t, limits{replay: mib, streamed: 2 * mib})
	r.addNode("a", fakeEngine(t, digest), "m")
	for name, tt := range map[string]struct {
		body    []byte
		chunked bool
	}{
		"model too far behind":         {prompt(2*mib, true), true},
		"over the last bound":          {prompt(3*mib, false), false},
		"over the last bound, chunked": {prompt(3*mib, false), true},
	} {
		t.Run(name, func(t *testing.T) {
			var in io.Reader = bytes.NewReader(tt.body)
			if tt.chunked {
				in = struct{ io.Reader }{in}
			}
			resp, err := http.Post(r.url("/api/chat"), "application/json", in)
			require.NoError(t, err)
			defer func() { _ = resp.Body.Close() }()
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
			require.Equal(t, `{"error":"request body exceeds 32 MiB limit"}`, string(got))
		})
	}
	status, _, _ := r.send("/api/show", prompt(2*mib, false), false)
	require.Equal(t, http.StatusRequestEntityTooLarge, status)
}

func TestARequestThatChangesAnEngineMayBeOfAnySize(t *testing.T) {
	r := newRigWith(t, limits{streamed: mib, held: mib})
	r.ownEngine(fakeEngine(t, digest))
	body := bytes.Repeat([]byte("blob"), 2*mib)
	for _, chunked := range []bool{false, true} {
		status, got, _ := r.send("/api/blobs/sha256:00", body, chunked)
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, sumOf(body), got)
	}
}

func TestHeldBodiesAreBoundedAndLetGoAtCommit(t *testing.T) { // DEC-145
	r := newRigWith(t, limits{held: 100 << 10})
	commit, finish := make(chan struct{}), make(chan struct{})
	r.addNode("a", fakeEngine(t, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		<-commit
		_, _ = io.WriteString(w, "begin")
		w.(http.Flusher).Flush()
		<-finish
	}), "m")
	type answer struct {
		resp *http.Response
		err  error
	}
	first := make(chan answer, 1)
	go func() {
		resp, err := http.Post(r.url("/api/chat"), "application/json", bytes.NewReader(prompt(80<<10, false)))
		first <- answer{resp, err}
	}()
	r.awaitTrace("queued@-", "queued@a")
	for _, chunked := range []bool{false, true} {
		status, body, header := r.send("/v1/chat/completions", prompt(80<<10, false), chunked)
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Contains(t, body, "too many large requests at once")
		require.Equal(t, "1", header.Get("Retry-After"))
	}
	status, _, _ := r.send("/api/chat", []byte(`{"model":"unknown"}`), false)
	require.Equal(t, http.StatusBadGateway, status, "a small one finds room")

	close(commit)
	a := <-first
	require.NoError(t, a.err)
	defer func() { _ = a.resp.Body.Close() }()
	buf := make([]byte, 5)
	_, err := io.ReadFull(a.resp.Body, buf)
	require.NoError(t, err)
	status, body, _ := r.send("/v1/chat/completions", bytes.Replace(prompt(80<<10, false), []byte(`"m"`), []byte(`"n"`), 1), false)
	require.Equal(t, http.StatusBadGateway, status, "the answer runs, its body is let go: %s", body)
	close(finish)
}

func TestMemoryOfBodiesIsGivenBack(t *testing.T) {
	const maxReplay = 2 * mib
	b := &bodies{most: 5 * mib, replay: maxReplay}
	for _, tt := range []struct {
		size, declared int64
		err            error
	}{
		{0, 0, nil}, {1, 1, nil}, {100, -1, nil}, {smallBody, smallBody, nil}, {smallBody + 1, -1, nil}, {largeBody + 1, -1, nil}, {mib, mib, nil},
		{mib, -1, nil}, {maxReplay, maxReplay, nil}, {maxReplay, -1, nil}, {maxReplay + 1, maxReplay + 1, errLarge},
		{maxReplay + 1, -1, errLarge},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", io.LimitReader(endless{}, tt.size))
		r.ContentLength = tt.declared
		held, err := b.read(r)
		require.ErrorIs(t, err, tt.err)
		require.Len(t, held.bytes, int(tt.size))
		require.LessOrEqual(t, b.held.Load(), b.most)
		require.GreaterOrEqual(t, b.held.Load(), tt.size)
		held.free()
		held.free()
		require.Zero(t, b.held.Load(), "%+v", tt)
	}
	gone := errors.New("client left")
	r := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(io.LimitReader(endless{}, mib), failing{gone}))
	r.ContentLength = -1
	_, err := b.read(r)
	require.ErrorIs(t, err, gone)
	require.Zero(t, b.held.Load())

	b.most = mib
	r = httptest.NewRequest(http.MethodPost, "/", endless{})
	r.ContentLength = -1
	_, err = b.read(r)
	require.ErrorIs(t, err, errMemory)
	require.Zero(t, b.held.Load())
}

// endless is a reader whose bytes do not matter.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestAnEncodedBodyGoesToTheOwnEngineOnly(t *testing.T) { // DEC-135
	r := newRig(t)
	body := []byte("\x28\xb5\x2f\xfd not to be read")
	r.addNode("a", fakeEngine(t, func(http.ResponseWriter, *http.Request) { t.Error("reached") }), "m")
	status, got, _ := r.send("/v1/responses", body, false, "Content-Encoding", "zstd")
	require.Equal(t, http.StatusBadGateway, status)
	require.Contains(t, got, "this node has no Ollama engine running")

	tries := 0
	r.ownEngine(fakeEngine(t, func(w http.ResponseWriter, req *http.Request) {
		tries++
		require.Equal(t, "zstd", req.Header.Get("Content-Encoding"))
		raw, _ := io.ReadAll(req.Body)
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write(raw)
	}))
	status, got, _ = r.send("/v1/responses", body, true, "Content-Encoding", "zstd")
	require.Equal(t, http.StatusInternalServerError, status)
	require.Equal(t, string(body), got)
	require.Equal(t, 1, tries)
}

func TestABrokenUploadReachesNobodyAndEndsAtOnce(t *testing.T) {
	r := newRig(t)
	seen := make(chan error, 1)
	r.ownEngine(fakeEngine(t, func(_ http.ResponseWriter, req *http.Request) {
		_, err := io.Copy(io.Discard, req.Body)
		seen <- err
	}))
	for name, request := range map[string]string{
		"inference": "POST /api/chat HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"mod\r\nzz\r\n",
		"control":   "POST /api/pull HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"mod\r\nzz\r\n",
	} {
		c := r.dial()
		c.say(request)
		resp, body := c.answer("POST")
		require.Equal(t, http.StatusBadRequest, resp.StatusCode, name)
		require.Contains(t, body, "request body could not be read")
	}
	// The client leaves in the middle of an upload: nobody may wait for the rest.
	c := r.dial()
	c.say("POST /api/blobs/sha256:00 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("x", 100_000))
	_ = c.Close()
	select {
	case err := <-seen:
		require.Error(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("the engine still waits")
	}
	require.Zero(t, r.ended(3).Status)
	require.Empty(t, r.trace())
}

func TestAnUploadIsRefusedEarlyAndStillReadsItsAnswer(t *testing.T) {
	r := newRig(t)
	r.ownEngine(fakeEngine(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusOK) // as Ollama does with a blob it has
	}))
	status, _, _ := r.send("/api/blobs/sha256:00", make([]byte, 16*mib), false)
	require.Equal(t, http.StatusOK, status)
}
