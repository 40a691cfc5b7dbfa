// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// golden is a request whose answer was recorded.
type golden struct {
	file string // below testdata, without .http
	cfg  Config
	// do prepares the engine: requests and faults ahead of the one that counts.
	do      func(t *testing.T, e *Engine)
	request string // method, path and headers, separated by " | "
	body    string
}

// volatile members differ from answer to answer or from model to model; of them
// only the kind of value is compared.
var volatile = map[string]bool{"id": true, "created_at": true, "modified_at": true, "expires_at": true, "digest": true,
	"response": true, "content": true, "text": true, "delta": true, "context": true, "total_duration": true,
	"load_duration": true, "prompt_eval_duration": true, "eval_duration": true, "size": true, "request_id": true,
	"item_id": true, "version": true, "details": true, "modelfile": true, "template": true, "model_info": true,
	"timings": true, "system_fingerprint": true, "cached_tokens": true, "cache_read_input_tokens": true,
	"input_tokens": true, "total_tokens": true, "meta": true, "args": true, "preset": true, "build_info": true,
	"model_alias": true, "model_path": true, "webui": true, "chat_template": true, "job_id": true,
	"downloaded_bytes": true, "parameter_size": true, "arch": true, "publisher": true, "display_name": true,
	"quantization": true, "architecture": true, "response_id": true, "server_load": true, "is_sleeping": true,
	"id_slot": true, "tokens": true, "tokens_cached": true, "completed": true, "total": true,
	"prompt_tokens": true, "n_ctx": true, "params_string": true, "total_size_bytes": true, "compatibility_type": true,
	"bits_per_weight": true}

// texts are members whose whole value is generated text or random, and nothing
// else; as objects they are looked into.
var texts = map[string]bool{"content": true, "text": true, "delta": true, "response": true}

// normal brings a JSON value into a form in which only shape and stable values count.
func normal(v any, key string) any {
	switch v := v.(type) {
	case map[string]any:
		if volatile[key] && !texts[key] {
			return "object"
		}
		out := map[string]any{}
		for k, member := range v {
			out[k] = normal(member, k)
		}
		return out
	case []any:
		if volatile[key] && !texts[key] {
			return "list"
		}
		out := []any{}
		for _, element := range v {
			out = append(out, normal(element, ""))
		}
		return out
	case nil:
		return nil
	}
	if volatile[key] {
		return fmt.Sprintf("%T", v)
	}
	if s, ok := v.(string); ok && s != "pulling manifest" { // texts with a digest or generated text at their end
		for _, known := range []string{"pulling ", "creating new layer ", "digest mismatch, ", "Failed to parse input "} {
			if strings.HasPrefix(s, known) {
				return known
			}
		}
	}
	return v
}

// lines normalises a body, a chunk or an event stream: JSON is parsed line by
// line, the rest stays.
func lines(t *testing.T, b []byte) []any {
	t.Helper()
	var whole any
	if json.Unmarshal(b, &whole) == nil {
		indented := bytes.HasPrefix(b, []byte("{\n  "))
		return []any{normal(whole, ""), "newline " + strconv.FormatBool(bytes.HasSuffix(b, []byte("\n"))),
			"indented " + strconv.FormatBool(indented)}
	}
	var out []any
	for line := range strings.SplitSeq(string(b), "\n") {
		prefix, text := "", line
		if rest, ok := strings.CutPrefix(line, "data: "); ok {
			prefix, text = "data: ", rest
		}
		var v any
		if json.Unmarshal([]byte(text), &v) == nil {
			out = append(out, prefix, normal(v, ""))
			continue
		}
		out = append(out, line)
	}
	return out
}

// shape is what is compared of an answer.
type shape struct {
	Status  string
	Headers []string
	Chunks  [][]any // one that is not chunked has one
}

// shapeOf takes an answer apart as it stands on the wire.
func shapeOf(t *testing.T, raw []byte) shape {
	t.Helper()
	head, body, ok := bytes.Cut(raw, []byte("\r\n\r\n"))
	require.True(t, ok, "no end of head in %q", raw)
	var s shape
	chunked := false
	for i, line := range strings.Split(string(head), "\r\n") {
		if i == 0 {
			s.Status = line
			continue
		}
		name, value, _ := strings.Cut(line, ": ")
		switch strings.ToLower(name) {
		case "date", "content-length", "process-start-time-unix":
			value = "any"
		case "transfer-encoding":
			chunked = true
		}
		s.Headers = append(s.Headers, name+": "+value)
	}
	slices.Sort(s.Headers)
	if !chunked {
		s.Chunks = append(s.Chunks, lines(t, body))
		return s
	}
	for {
		line, rest, ok := bytes.Cut(body, []byte("\r\n"))
		require.True(t, ok, "no size of a chunk in %q", body)
		n, err := strconv.ParseInt(string(line), 16, 64)
		require.NoError(t, err)
		if n == 0 {
			return s
		}
		s.Chunks = append(s.Chunks, lines(t, rest[:n]))
		body = rest[n+2:]
	}
}

// exchangeRaw sends one request on a connection of its own and returns the bytes
// of the answer.
func exchangeRaw(t *testing.T, e *Engine, request, body string) []byte {
	t.Helper()
	nc, err := net.Dial("tcp", e.Addr())
	require.NoError(t, err)
	defer func() { _ = nc.Close() }()
	parts := strings.Split(request, " | ")
	method, _, _ := strings.Cut(parts[0], " ")
	head := parts[0] + " HTTP/1.1\r\n"
	if !strings.Contains(request, "Host: ") {
		head += "Host: " + e.Addr() + "\r\n"
	}
	for _, h := range parts[1:] {
		head += h + "\r\n"
	}
	if method != "GET" && method != "HEAD" {
		head += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	_, err = io.WriteString(nc, head+"\r\n"+body)
	require.NoError(t, err)
	var raw bytes.Buffer
	res, err := http.ReadResponse(bufio.NewReader(io.TeeReader(nc, &raw)), &http.Request{Method: method})
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, res.Body)
	require.NoError(t, err, "answer so far: %q", raw.Bytes())
	return raw.Bytes()
}

// ask is exchangeRaw for a step whose answer does not count.
func ask(request, body string) func(*testing.T, *Engine) {
	return func(t *testing.T, e *Engine) {
		t.Helper()
		exchangeRaw(t, e, request, body)
	}
}

func faulty(faults ...Fault) func(*testing.T, *Engine) {
	return func(t *testing.T, e *Engine) {
		t.Helper()
		require.NoError(t, e.Faults.Set(faults...))
	}
}

func TestAnswersHaveTheShapeOfRecordedOnes(t *testing.T) {
	for _, g := range slices.Concat(ollamaGolden(), ollamaRunGolden(), lmstudioGolden(), llamaGolden(), vllmGolden()) {
		t.Run(g.file, func(t *testing.T) {
			recorded, err := os.ReadFile(filepath.Join("testdata", g.file+".http"))
			require.NoError(t, err)
			e := StartTest(t, g.cfg)
			if g.do != nil {
				g.do(t, e)
			}
			answer := exchangeRaw(t, e, g.request, g.body)
			require.Equal(t, shapeOf(t, recorded), shapeOf(t, answer), "answer: %s", answer)
			if g.do == nil {
				again := exchangeRaw(t, StartTest(t, g.cfg), g.request, g.body)
				require.Equal(t, withoutDate(answer), withoutDate(again), "the same request got another answer")
			}
		})
	}
}

func withoutDate(raw []byte) string {
	var kept []string
	for line := range strings.SplitSeq(string(raw), "\r\n") {
		if !strings.HasPrefix(strings.ToLower(line), "date: ") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\r\n")
}
