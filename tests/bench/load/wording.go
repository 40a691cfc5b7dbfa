// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"strconv"
	"strings"
)

// Model is the one model that the stand-in lists.
const Model = "bench"

// Chunks is how many chunks a fast stream has before its terminator.
const Chunks = 64

// Kinds of requests.
const (
	KindJSON   = "json"   // answered with one JSON object of about 600 bytes
	KindStream = "stream" // answered with 64 chunks of about 120 bytes, each sent by itself and without delay
	KindPause  = "pause"  // the same with a pause after the first chunk, so that what follows does not delay its reader
	KindSlow   = "slow"   // answered with one chunk a second
)

const (
	done       = "data: [DONE]\n\n"
	streamMark = `"stream":true` // of a request for a stream; all marks are within its first markBytes
	pauseMark  = `"stand_in_pause":true`
	slowMark   = `"stand_in_seconds":`
	markBytes  = 128
)

const modelList = `{"object":"list","data":[{"id":"` + Model + `","object":"model","created":1700000000,"owned_by":"stand-in"}]}`

// answer is the body of every answer that is no stream.
var answer = `{"id":"chatcmpl-0000000000000001","object":"chat.completion","created":1700000000,"model":"` + Model +
	`","choices":[{"index":0,"message":{"role":"assistant","content":"[stand-in, no model] ` +
	strings.Repeat("An answer of a usual length. ", 12) +
	`"},"finish_reason":"stop"}],"usage":{"prompt_tokens":50,"completion_tokens":100,"total_tokens":150}}`

// chunk returns event n of a stream. Each differs, so that one that is lost, doubled or misplaced is seen.
func chunk(n int) string {
	return fmt.Sprintf(`data: {"id":"chatcmpl-01","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" token %04d"}}]}`+
		"\n\n", n)
}

// events returns a stream's body.
func events(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(chunk(i))
	}
	return b.String() + done
}

// prompt returns a request's body of that many bytes, or a little more where that is too short.
func prompt(kind string, seconds, size int) string {
	head := `{"model":"` + Model + `",`
	switch kind {
	case KindStream:
		head += streamMark + ","
	case KindPause:
		head += streamMark + "," + pauseMark + ","
	case KindSlow:
		head += streamMark + "," + slowMark + strconv.Itoa(seconds) + ","
	}
	head += `"messages":[{"role":"user","content":"`
	const tail, line = `"}]}`, `What is asked here is of no importance, only its \"length\" is.\n`
	n := max(size-len(head)-len(tail), 0)
	text := strings.Repeat(line, n/len(line)) + strings.Repeat(".", n%len(line))
	return head + text + tail
}
