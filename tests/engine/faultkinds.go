// SPDX-License-Identifier: Apache-2.0

package engine

// The kinds of faults. Those with moments act at Fault.At; the default is named.
const (
	KindCut     Kind = "cut"     // close the connection (before-headers)
	KindReset   Kind = "reset"   // reset it (before-headers)
	KindSilence Kind = "silence" // nothing for Ms, then on (before-headers)
	KindHang    Kind = "hang"    // nothing until the client leaves or the fault is cleared (before-headers)
	KindGarbage Kind = "garbage" // bytes that are no HTTP, or no chunk, then the end (before-headers)
	KindStatus  Kind = "status"  // answer Status in the dialect's words (body read; "head": body unread)

	KindErrorOK       Kind = "error-200"       // 200 with an error body
	KindBusy          Kind = "busy"            // the full queue's 503
	KindLoadFailed    Kind = "load-failed"     // the model's process ends while loading
	KindStreamError   Kind = "stream-error"    // an error in mid-stream, in a Form
	KindNoTerminator  Kind = "no-terminator"   // a clean end without the stream's terminator
	KindHoldOpen      Kind = "hold-open"       // the terminator, then nothing for Ms
	KindTrickle       Kind = "trickle"         // Bytes at a time, every Ms
	KindSlowRead      Kind = "slow-read"       // reads the body Bytes at a time, every Ms
	KindHeadersEarly  Kind = "headers-early"   // the head goes out before the first token
	KindHeadersLate   Kind = "headers-late"    // it goes out with the first token
	KindFraming       Kind = "framing"         // cuts the stream into chunks in a Form
	KindExpectIgnored Kind = "expect-ignored"  // no 100 to an Expect
	KindList          Kind = "list"            // model lists in a Form
	KindPull          Kind = "pull"            // a pull goes wrong in a Form
	KindGhost         Kind = "ghost"           // the slot stays taken for Ms once its client has left
	KindHalfClose     Kind = "half-close-hang" // a client that closed its half gets neither answer nor end, for Ms or a minute
	KindBothHeaders   Kind = "keep-and-close"  // Keep-Alive and Connection: close in one head
	KindDead          Kind = "dead"            // vLLM: the engine process died, health is 503
)

// The moments.
const (
	AtAccept           Moment = "accept"            // a new connection
	AtFirstByte        Moment = "first-byte"        // a request begins on a kept connection
	AtHead             Moment = "head"              // the head is read, the body is not
	AtBody             Moment = "body"              // the body is read, nothing has been done
	AtBeforeHeaders    Moment = "before-headers"    // the answer is about to start
	AtAfterHeaders     Moment = "after-headers"     // its head is sent
	AtMidStream        Moment = "mid-stream"        // After chunks are sent; half a body that is not streamed
	AtBeforeTerminator Moment = "before-terminator" // all but the terminator is sent
	AtEnd              Moment = "end"               // the answer is complete and the connection kept
)

var moments = []Moment{AtAccept, AtFirstByte, AtHead, AtBody, AtBeforeHeaders, AtAfterHeaders, AtMidStream,
	AtBeforeTerminator, AtEnd}

// kinds says what each kind needs.
var kinds = map[Kind]struct {
	timed     bool // acts at a moment
	needsForm bool
	forms     []string
}{
	KindCut: {timed: true}, KindReset: {timed: true}, KindSilence: {timed: true}, KindHang: {timed: true},
	KindGarbage: {timed: true}, KindStatus: {}, KindErrorOK: {}, KindBusy: {}, KindLoadFailed: {},
	KindStreamError: {forms: []string{"ndjson", "data", "data-done", "event", "event-bare", "none", "empty-model"}},
	KindFraming: {needsForm: true, forms: []string{"bytewise", "utf8", "line", "joined", "comment", "ping",
		"no-last-newline", "long-line"}},
	KindList: {needsForm: true, forms: []string{"empty", "null", "absent", "both", "bad-row", "repeated", "many",
		"spellings", "changing"}},
	KindPull:         {needsForm: true, forms: []string{"error", "stall", "no-total"}},
	KindNoTerminator: {}, KindHoldOpen: {}, KindTrickle: {}, KindSlowRead: {}, KindHeadersEarly: {},
	KindHeadersLate: {}, KindExpectIgnored: {}, KindGhost: {}, KindHalfClose: {}, KindBothHeaders: {}, KindDead: {},
}

// moment returns when a fault acts, "" for one that is no matter of time.
func (f *fault) moment() Moment {
	if !kinds[f.Kind].timed {
		return ""
	}
	if f.At == "" {
		return AtBeforeHeaders
	}
	return f.At
}
