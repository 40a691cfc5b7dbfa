// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/tests/engine"
	"nvpair/tests/harness"
)

const (
	mib       = 1 << 20
	replayed  = 32 * mib  // the largest body that can go to a second node
	heldMost  = 512 * mib // of all bodies at once
	heldSlack = 200 * mib // what the rest of a proxy may take then
)

// promptOf is a request of that many bytes.
func promptOf(size int) []byte {
	start, end := `{"model":"demo","messages":[{"role":"user","content":"`, `"}]}`
	return []byte(start + strings.Repeat("p", size-len(start)-len(end)) + end)
}

// post sends a body to a port and returns status and answer.
func (n *inference) post(port int, path, encoding string, body io.Reader, length int64) (int, string) {
	n.t.Helper()
	req, err := http.NewRequest(http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d%s", port, path), body)
	require.NoError(n.t, err)
	req.ContentLength = length
	if encoding != "" {
		req.Header.Set("Content-Encoding", encoding)
	}
	resp, err := n.http.Do(req)
	require.NoError(n.t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(n.t, err)
	return resp.StatusCode, string(raw)
}

// What the proxy cannot make sense of is the engine's to judge: through the facade the answer is the engine's own.
func TestBodiesOfAnyKindGetTheEnginesOwnAnswer(t *testing.T) {
	t.Parallel()
	n := startInference(t, engine.Config{})
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write(promptOf(1000))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	late := string(promptOf(mib))
	late = `{` + late[len(`{"model":"demo",`):len(late)-1] + `,"model":"demo"}` // its last bytes
	const content = `"messages":[{"role":"user","content":"x"}]`
	for _, tt := range []struct {
		name, encoding, body string
		status               int
	}{
		{"none", "", "", 400},
		{"no JSON", "", `{"model":"demo"`, 400},
		{"no object", "", `["model","demo"]`, 400},
		{"no model", "", `{` + content + `}`, 404},
		{"model twice", "", `{"model":"other","model":"demo",` + content + `}`, 200},
		{"model is a number", "", `{"model":1,` + content + `}`, 404},
		{"model is null", "", `{"model":null,` + content + `}`, 404},
		{"model in something else", "", `{"options":{"model":"demo"},` + content + `}`, 404},
		{"model at the end of 1 MiB", "", late, 200},
		{"model in escapes", "", `{"\u006dodel":"\u0064emo",` + content + `}`, 200},
		{"gzip", "gzip", packed.String(), 0}, // whatever it says
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			status, answer := n.post(11434, "/v1/chat/completions", tt.encoding, strings.NewReader(tt.body), int64(len(tt.body)))
			direct, want := n.post(11435, "/v1/chat/completions", tt.encoding, strings.NewReader(tt.body), int64(len(tt.body)))
			require.Equal(t, direct, status, "%.200s", answer)
			require.Equal(t, want, answer)
			if tt.status != 0 {
				require.Equal(t, tt.status, status, "%.200s", answer)
			}
		})
	}
}

func TestTheLargestReplayableBodyGoesToASecondNode(t *testing.T) {
	t.Parallel()
	n := startPlain(t, engine.Config{IdleTimeout: 1}) // no connection is kept: one that dies in use is no try
	second := n.addNode("second", engine.Config{Models: []engine.Model{{Name: "demo:latest"}}})
	require.NoError(t, n.engine.Faults.Set(engine.Fault{Kind: engine.KindCut, At: engine.AtBody, Path: "/v1/chat/completions"}))
	require.NoError(t, second.Faults.Set(engine.Fault{Kind: engine.KindStatus, Status: 200, Body: new(string)}))
	body := promptOf(replayed)
	sum := sha256.Sum256(body)
	status, answer := n.post(11434, "/v1/chat/completions", "", bytes.NewReader(body), int64(len(body)))
	require.Equal(t, http.StatusOK, status, answer)
	require.Equal(t, 1, asks(n.engine)["demo"])
	got := slices.DeleteFunc(second.Witness().Requests, func(r engine.Record) bool { return r.Method != http.MethodPost }) // signs of life
	require.Len(t, got, 1)
	require.Equal(t, []any{int64(replayed), hex.EncodeToString(sum[:])}, []any{got[0].BodyBytes, got[0].BodyHash})
	require.Equal(t, map[string]int{"completed": 1}, n.jobs.awaitEnded(t, 1))
}

// raw sends a body over a connection of its own and returns the answer, which may come while the body is on its way.
func (n *inference) raw(body []byte) (*http.Response, error) {
	conn, err := n.h.Dial("tcp", "127.0.0.1:11434")
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var sent sync.WaitGroup
	defer sent.Wait()
	sent.Go(func() {
		_, _ = fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", len(body))
		_, _ = conn.Write(body) // who is refused is not heard out
	})
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	}
	_ = conn.Close() // ends the sender
	return resp, err
}

func TestManyLargeBodiesAtOnceAreHeldWithinBounds(t *testing.T) {
	t.Parallel()
	const requests, held = 200, heldMost/replayed - 1 // a byte is added to each, to see its end
	n := startPlain(t, engine.Config{})
	proxy := pidOf(t, n.c, "nvpair-proxy")
	body := promptOf(replayed)
	for round, count := range []int{requests, held} { // once the first are let go, as many are taken again
		// The engine leaves the bodies where they are until the end, and then answers without them.
		done := "done"
		require.NoError(t, n.engine.Faults.Set(
			engine.Fault{Kind: engine.KindStatus, At: engine.AtHead, Status: 200, Body: &done, Path: "/v1/chat/completions"},
			engine.Fault{Kind: engine.KindHang, At: engine.AtHead, Path: "/v1/chat/completions"}))
		var served, refused atomic.Int32
		var wg sync.WaitGroup
		for i := range count {
			wg.Go(func() {
				switch resp, err := n.raw(body); {
				case err != nil:
					t.Errorf("request %d: %v", i, err)
				case resp.StatusCode == http.StatusOK:
					served.Add(1)
				case resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "":
					refused.Add(1)
				default:
					t.Errorf("request %d: status %d, Retry-After %q", i, resp.StatusCode, resp.Header.Get("Retry-After"))
				}
			})
		}
		n.awaitEngine("as many as can be held", func(r engine.Report) bool { return running(r) == held })
		harness.Eventually(t, inferenceWithin, "refusal of the others", func() bool { return int(refused.Load()) == count-held })
		n.engine.Faults.Clear()
		wg.Wait()
		require.Equal(t, []int32{held, int32(count - held)}, []int32{served.Load(), refused.Load()}, "round %d", round)
		peak := peakMemory(t, proxy)
		t.Logf("round %d: peak %d MiB", round, peak/mib)
		require.Less(t, peak, heldMost+heldSlack)
		n.requireServed(11434)
	}
	n.jobs.awaitEnded(t, 2*held+2)
}

func TestABlobOfAnySizeIsPassedOnWithoutBeingHeld(t *testing.T) {
	t.Parallel()
	const growthMost = 64 * mib
	size := 256 * mib
	if *soakWanted {
		size = 1 << 30
	}
	n := startPlain(t, engine.Config{})
	proxy := pidOf(t, n.c, "nvpair-proxy")
	block := bytes.Repeat([]byte("0123456789abcdef"), mib/16)
	sum := sha256.New()
	for range size / mib {
		sum.Write(block)
	}
	digest := hex.EncodeToString(sum.Sum(nil))
	before := peakMemory(t, proxy)
	status, answer := n.post(11434, "/api/blobs/sha256:"+digest, "", &repeated{block: block, left: size}, int64(size))
	require.Equal(t, http.StatusCreated, status, answer)
	for _, r := range n.engine.Witness().Requests {
		if r.Method == http.MethodPost {
			require.Equal(t, []any{int64(size), digest}, []any{r.BodyBytes, r.BodyHash})
		}
	}
	growth := peakMemory(t, proxy) - before
	t.Logf("the proxy grew by %d MiB", growth/mib)
	require.Less(t, growth, growthMost)
}

// repeated is a block again and again.
type repeated struct {
	block []byte
	left  int
}

func (r *repeated) Read(b []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	at := len(r.block) - (r.left-1)%len(r.block) - 1
	n := copy(b, r.block[at:])
	r.left -= n
	return n, nil
}
