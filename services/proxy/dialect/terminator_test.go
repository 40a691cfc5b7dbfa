// SPDX-License-Identifier: Apache-2.0

package dialect

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	ndjson = "application/x-ndjson"
	events = "text/event-stream"
)

// streams are whole streams: without their last mark they are cut ones.
var streams = map[string]struct {
	contentType, path, before, mark, after string
}{
	"ollama chat": {
		ndjson, "/api/chat", `{"message":{"content":"say \"done\":true"},"done":false}` + "\n" + `{"message":{"content":""},`,
		`"done":true,"done_reason":"stop"}`, "\n",
	},
	"ollama generate": {
		ndjson + "; charset=utf-8", "/api/generate", `{"response":"\n\"done\":true","done":false}` + "\n" + `{"response":"",`,
		`"done": true,"context":[1,2,3` + strings.Repeat(",1234", 50) + `]}`, "\n",
	},
	"openai": {
		events, "/v1/chat/completions", `data: {"choices":[{"delta":{"content":"\ndata: [DONE]\n"}}]}` + "\n\n",
		"data: [DONE]", "\n\n",
	},
	"openai without blanks": {
		events + "; charset=utf-8", "/v1/completions", ": comment\n\ndata:{}\n\n", "data:[DONE]", "\n\n",
	},
	"openai with returns": {
		events, "/api/v0/chat/completions", "data: {}\r\n\r\n", "data: [DONE]", "\r\n\r\n",
	},
	"messages": {
		events, "/v1/messages", "event: content_block_delta\n" + `data: {"delta":{"text":"\nevent: message_stop"}}` + "\n\n",
		"event: message_stop\ndata: {\"type\":\"message_stop\"}", "\n\n",
	},
	"responses": {
		events, "/v1/responses", "event: response.output_text.delta\n" + `data: {"delta":"\"type\":\"response.completed\""}` + "\n\n",
		"event: response.completed\ndata: {}", "\n\n",
	},
	"responses without names": {
		events, "/v1/responses", `data: {"type":"response.created"}` + "\n\n", `data: {"a":1,"type": "response.incomplete"}`, "\n\n",
	},
	"failed response": {
		events, "/v1/responses", "event: response.created\ndata: {}\n\n", "event: response.failed\ndata: {}", "\n\n",
	},
	"lm studio": {
		events, "/api/v1/chat", "event: message.delta\n" + `data: {"content":"\nevent: chat.end"}` + "\n\n", "event: chat.end\ndata: {}", "\n\n",
	},
}

// feed writes the parts and reports whether the stream counts as whole.
func feed(contentType, path string, parts ...string) bool {
	w := NewTerminator(contentType, path)
	for _, p := range parts {
		w.Write([]byte(p))
	}
	return w.Whole()
}

func TestAStreamIsWholeWithItsMarkHoweverItIsCutUp(t *testing.T) {
	for name, s := range streams {
		whole := s.before + s.mark + s.after
		if feed(s.contentType, s.path, s.before) {
			t.Errorf("%s: whole without its mark", name)
		}
		for i := range len(whole) + 1 {
			if !feed(s.contentType, s.path, whole[:i], whole[i:]) {
				t.Errorf("%s: not whole when cut at %d: %q", name, i, whole[:i])
			}
			if feed(s.contentType, s.path, whole[:i]) != (i >= len(s.before+s.mark)) {
				t.Errorf("%s: ends at %d: %q", name, i, whole[:i])
			}
		}
		for _, step := range []int{1, 2, 3, 7, 47, 48, 49} {
			var parts []string
			for rest := whole; rest != ""; {
				n := min(step, len(rest))
				parts, rest = append(parts, rest[:n]), rest[n:]
			}
			if !feed(s.contentType, s.path, parts...) {
				t.Errorf("%s: not whole in parts of %d", name, step)
			}
		}
	}
}

func TestAMarkIsFoundBetweenLongReads(t *testing.T) {
	for name, s := range streams {
		long := strings.Repeat("x", 100_000)
		for i := range len(s.mark) + 1 {
			parts := []string{s.before + "\n" + long + "\n" + s.mark[:i], s.mark[i:] + s.after + long}
			if strings.HasPrefix(s.contentType, ndjson) {
				parts[0] = s.before + long + s.mark[:i]
			}
			if !feed(s.contentType, s.path, parts...) {
				t.Errorf("%s: lost at %d", name, i)
			}
		}
	}
}

func TestAMarkAfterAnErrorProvesNothing(t *testing.T) {
	for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
		for _, fault := range []string{
			"data: {\"error\":{\"message\":\"m\"}}\n\n", "data:{\"error\": \"m\"}\n\n", "event: error\ndata: {}\n\n",
			"event:error\ndata: {}\n\n",
		} {
			whole := "data: {}\n\n" + fault + "data: [DONE]\n\n"
			for i := range len(whole) {
				require.False(t, feed(events, path, whole[:i], whole[i:]), "%q cut at %d", whole, i)
			}
		}
	}
	require.False(t, feed(events, "/v1/messages", "event: error\ndata: {}\n\nevent: message_stop\ndata: {}\n\n"))
	require.False(t, feed(ndjson, "/api/chat", `{"done":false}`+"\n"+`{"error":"runner died"}`+"\n"))
	require.True(t, feed(events, "/v1/chat/completions",
		`data: {"delta":{"content":"\ndata: {\"error\":1}\nevent: error"}}`+"\n\ndata: [DONE]\n\n"), "an error that is told of")
}

// A tool may be called with any argument.
func TestADoneInsideAnObjectIsContent(t *testing.T) {
	call := `{"message":{"tool_calls":[{"function":{"name":"f","arguments":{"done":true}}}]},"done":false}` + "\n"
	require.False(t, feed(ndjson, "/api/chat", call))
	require.True(t, feed(ndjson, "/api/chat", call+`{ "done" : true }`))
	for _, line := range []string{`{"a":"done","b":true}`, `{"undone":true}`, `{"done":"true"}`, `{"done":[true]}`, `{"d\u006fne2":true}`,
		`["done",true]`, `{"done":tru`, `{"x":["done":true]}`, "true"} {
		require.False(t, feed(ndjson, "/api/chat", line+"\n"), line)
	}
}

// What engines send that looks like an end and is none, and the other way round.
func TestOnlyTheMarkItselfIsOne(t *testing.T) {
	for _, tt := range []struct {
		contentType, path, stream string
		whole                     bool
	}{
		{ndjson, "/api/chat", `{"response":"","done":true`, false}, // cut in its last object
		{ndjson, "/api/chat", `{"error":"x"}` + "\n" + `{"done":true}` + "\n", false},
		{ndjson, "/api/chat", `{"error":"x","done":true}`, false},
		{ndjson, "/api/chat", `{"error":null,"done":true}`, true},
		{ndjson, "/api/chat", `{"error":{"a":1},"done":true}`, false},
		{ndjson, "/api/chat", `]{"x":{"done":true`, false},
		{ndjson, "/api/chat", `{"done":true}`, true},
		{events, PathResponses, "event: response.completed\n", false},
		{events, PathResponses, "event: response.completed\ndata: {\"a\":", false},
		{events, PathResponses, `data: {"response":{"type":"response.completed"}}` + "\n\n", false},
		{events, PathResponses, `data: {"sequence_number":9,"response":{"output":[]},"type": "response.completed"}` + "\n\n", true},
		{events, PathResponses, `data: {"type":"error","message":"x"}` + "\n\n" + `data: {"type":"response.completed"}` + "\n\n", false},
		{events, "/v1/messages", "event: message_stop\n", false},
		{events, "/v1/messages", "event: message_stopper\ndata: {}\n\n", false},
		{events, "/v1/messages", "event: message_stop\n\ndata: {}\n\n", false}, // the name of an event without data
		{events, "/v1/messages", `data: {"type":"message_stop"}` + "\n\n", true},
		{events, "/v1/chat/completions", "data: [DONE]x\n\n", false},
		{events, "/v1/chat/completions", "data: [DONE]", true}, // the last line needs no end
		{events, "/v1/chat/completions", "data: [DONE", false},
		{events, "/v1/chat/completions", `data: {"object":"error","error":"x"}` + "\n\ndata: [DONE]\n\n", false},
		{events, "/v1/chat/completions", `data: { "error" :"x"}` + "\n\ndata: [DONE]\n\n", false},
		{events, "/v1/chat/completions", `data: {"error":null,"choices":[]}` + "\n\ndata: [DONE]\n\n", true},
		{events, "/v1/chat/completions", `data: {"choices":[{"error":"told of"}]}` + "\n\ndata: [DONE]\n\n", true},
		{events, "/v1/chat/completions", "event: error_free\ndata: {}\n\ndata: [DONE]\n\n", true},
	} {
		for step := range []int{0, 1, 2, 3, 7} {
			var parts []string
			for rest := tt.stream; rest != ""; {
				n := min(max(step, 1), len(rest))
				if step == 0 {
					n = len(rest)
				}
				parts, rest = append(parts, rest[:n]), rest[n:]
			}
			require.Equal(t, tt.whole, feed(tt.contentType, tt.path, parts...), "%s in parts of %d", tt.stream, step)
		}
	}
}

func TestOtherAnswersOweNoMark(t *testing.T) {
	for _, contentType := range []string{"application/json", "", "text/plain", "no/type; =", ";", "image/png"} {
		w := NewTerminator(contentType, "/v1/chat/completions")
		require.Nil(t, w, contentType)
		w.Write([]byte("x"))
		require.True(t, w.Whole())
		require.False(t, w.Seen())
	}
	require.False(t, NewTerminator("TEXT/Event-Stream;charset=UTF-8", "/v1/messages").Whole(), "an empty stream is a cut one")
}

func TestTheFirstLineOfAStreamCounts(t *testing.T) {
	require.True(t, feed(events, "/v1/chat/completions", "data: [DONE]\n\n"))
	require.True(t, feed(events, "/v1/messages", "event: message_stop\ndata: {}\n\n"))
}

func TestTheWatchKeepsNoMoreThanItNeeds(t *testing.T) {
	w := NewTerminator(events, "/v1/chat/completions")
	for range 1000 {
		w.Write([]byte("data: {}\n\n"))
		w.Write(make([]byte, 40<<10))
	}
	watch := w.watch.(*eventWatch)
	require.LessOrEqual(t, cap(watch.line)+cap(watch.object.token)+cap(watch.object.key), 4*maxLineHead)
	chunk := []byte("data: {\"choices\":[{\"delta\":{\"content\":\"token\"}}]}\n\n")
	require.Zero(t, testing.AllocsPerRun(100, func() { w.Write(chunk) }))
}

func BenchmarkTerminator(b *testing.B) {
	w := NewTerminator(events, "/v1/chat/completions")
	chunk := []byte(`data: {"id":"x","choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}]}` + "\n\n")
	b.SetBytes(int64(len(chunk)))
	for b.Loop() {
		w.Write(chunk)
	}
}
