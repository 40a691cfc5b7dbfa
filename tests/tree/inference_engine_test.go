// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/tests/engine"
)

// Outcomes of a request as its client sees them.
const (
	whole = "whole" // 200, and the stream's terminator
	short = "short" // 200, and an end without it
	cut   = "cut"   // 200, and a connection that broke
)

// Ways of a job, each state once.
const (
	succeeds = "queued running completed"
	fails    = "queued running failed"
	unheard  = "queued failed" // no answer has begun
)

// engineFaults says what becomes of a request when this machine's engine has a fault: alone, and with a second node that
// has none. The first number is how often the engine is asked.
var engineFaults = []struct {
	name  string
	fault engine.Fault

	asked int    // how often the engine is, where it is alone
	seen  string // by its client
	job   string

	second bool // the request is served by the second node where there is one; otherwise all is as without
}{
	{"none", engine.Fault{Kind: engine.KindHeadersEarly}, 1, whole, succeeds, false},
	{"dies before headers", engine.Fault{Kind: engine.KindCut}, 5, "502", unheard, true},
	{"dies before headers once", engine.Fault{Kind: engine.KindCut, Times: 1}, 2, whole, succeeds, true},
	{"resets before headers", engine.Fault{Kind: engine.KindReset}, 5, "502", unheard, true},
	{"dies after headers", engine.Fault{Kind: engine.KindCut, At: engine.AtAfterHeaders}, 5, "502", unheard, true},
	{"resets after headers once", engine.Fault{Kind: engine.KindReset, At: engine.AtAfterHeaders, Times: 1}, 2, whole,
		succeeds, true},
	{"dies in mid-stream", engine.Fault{Kind: engine.KindCut, At: engine.AtMidStream}, 1, cut, fails, false},
	{"resets in mid-stream", engine.Fault{Kind: engine.KindReset, At: engine.AtMidStream}, 1, cut, fails, false},
	{"garbage in mid-stream", engine.Fault{Kind: engine.KindGarbage, At: engine.AtMidStream}, 1, cut, fails, false},
	{"dies before the terminator", engine.Fault{Kind: engine.KindCut, At: engine.AtBeforeTerminator}, 1, cut, fails, false},
	{"ends without terminator", engine.Fault{Kind: engine.KindNoTerminator}, 1, short, fails, false},
	{"ends with an error", engine.Fault{Kind: engine.KindStreamError, Form: "data-done"}, 1, whole, fails, false},
	{"400", engine.Fault{Kind: engine.KindStatus, Status: 400}, 1, "400", fails, false},
	{"404", engine.Fault{Kind: engine.KindStatus, Status: 404}, 5, "404", fails, true},
	{"404 once", engine.Fault{Kind: engine.KindStatus, Status: 404, Times: 1}, 2, whole, succeeds, true},
	{"408", engine.Fault{Kind: engine.KindStatus, Status: 408}, 5, "408", fails, true},
	{"429", engine.Fault{Kind: engine.KindStatus, Status: 429}, 5, "429", fails, true},
	{"500", engine.Fault{Kind: engine.KindStatus, Status: 500}, 5, "500", fails, true},
	{"501", engine.Fault{Kind: engine.KindStatus, Status: 501}, 1, "501", fails, false},
	{"503", engine.Fault{Kind: engine.KindStatus, Status: 503}, 5, "503", fails, true},
	{"full queue once", engine.Fault{Kind: engine.KindBusy, Times: 1}, 2, whole, succeeds, true},
	{"load fails", engine.Fault{Kind: engine.KindLoadFailed}, 5, "500", fails, true},
	{"garbage", engine.Fault{Kind: engine.KindGarbage}, 5, "502", unheard, true},
	{"trickles", engine.Fault{Kind: engine.KindTrickle, Bytes: 1, Ms: 1}, 1, whole, succeeds, false},
	{"one byte a chunk", engine.Fault{Kind: engine.KindFraming, Form: "bytewise"}, 1, whole, succeeds, false},
	{"closes after the response", engine.Fault{Kind: engine.KindCut, At: engine.AtEnd}, 1, whole, succeeds, false},
	{"silent for a while", engine.Fault{Kind: engine.KindSilence, Ms: 1000}, 1, whole, succeeds, false},
	{"silent in mid-stream", engine.Fault{Kind: engine.KindSilence, At: engine.AtMidStream, Ms: 1000}, 1, whole, succeeds,
		false},
	{"stays open behind the terminator", engine.Fault{Kind: engine.KindHoldOpen, Ms: 500}, 1, whole, succeeds, false},
}

// faultyModels are the models of the table, one a row, so that all rows can be asked at once.
func faultyModels() (models []engine.Model) {
	for i := range engineFaults {
		models = append(models, engine.Model{Name: faultyModel(i)})
	}
	return models
}

func faultyModel(i int) string { return fmt.Sprintf("demo-%d:latest", i) }

// startFaulty starts a tree in front of an engine that has the fault of each row for the model of that row.
func startFaulty(t *testing.T) *inference {
	t.Helper()
	// No connection is kept: one that dies when it is used again is no try (TestKeptConnectionsOfTheEngineMayCloseAtAnyMoment).
	n := startInference(t, engine.Config{Models: faultyModels(), IdleTimeout: 1})
	var faults []engine.Fault
	for i, tt := range engineFaults {
		tt.fault.Model = faultyModel(i)
		faults = append(faults, tt.fault)
	}
	require.NoError(t, n.engine.Faults.Set(faults...))
	return n
}

// askAll asks for each row's model at once and returns what the clients saw.
func (n *inference) askAll() []string {
	n.t.Helper()
	seen := make([]string, len(engineFaults))
	var wg sync.WaitGroup
	for i := range seen {
		wg.Go(func() { seen[i] = sight(chat(n.http, 11434, faultyModel(i))) })
	}
	wg.Wait()
	n.jobs.awaitEnded(n.t, len(engineFaults))
	return seen
}

// sight is what a client saw, in a word.
func sight(status int, body string) string {
	switch {
	case status == 0 && strings.Contains(body, "unexpected EOF"):
		return cut
	case status == 0:
		return body
	case status != http.StatusOK:
		return fmt.Sprint(status)
	case strings.HasSuffix(strings.TrimSpace(body), "data: [DONE]"):
		return whole
	}
	return short
}

// asks counts an engine's requests by model.
func asks(e *engine.Engine) map[string]int {
	count := map[string]int{}
	for _, r := range e.Witness().Requests {
		if r.Method == http.MethodPost {
			count[r.Model]++
		}
	}
	return count
}

func TestWhatBecomesOfARequestWhenItsOnlyEngineFails(t *testing.T) {
	t.Parallel()
	n := startFaulty(t)
	seen, asked := n.askAll(), asks(n.engine)
	for i, tt := range engineFaults {
		want := []any{tt.asked, tt.seen, tt.job}
		if got := []any{asked[faultyModel(i)], seen[i], n.jobs.ofModel(t, faultyModel(i))}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, want %v", tt.name, got, want)
		}
	}
}

func TestWhatBecomesOfARequestWhenTheFirstOfTwoEnginesFails(t *testing.T) {
	t.Parallel()
	n := startFaulty(t)
	second := n.addNode("second", engine.Config{Models: faultyModels()})
	seen, asked, asked2 := n.askAll(), asks(n.engine), asks(second)
	for i, tt := range engineFaults {
		want := []any{tt.asked, 0, tt.seen, tt.job}
		if tt.second {
			want = []any{1, 1, whole, succeeds}
		}
		model := faultyModel(i)
		if got := []any{asked[model], asked2[model], seen[i], n.jobs.ofModel(t, model)}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, want %v", tt.name, got, want)
		}
	}
}

// Content is not judged: only a stream that tells of an error, or lacks its terminator, is a failure.
func TestAnErrorOfLMStudioWithStatus200IsPassedOn(t *testing.T) {
	t.Parallel()
	n := startInference(t, engine.Config{}) // a facade of its own beside that of LM Studio
	studio := engineOn(t, n.h, "127.0.0.1:1235", engine.Config{
		Dialect: engine.LMStudio, Models: []engine.Model{{Name: "demo", Loaded: true}}})
	n.awaitModel(1234)
	for i, tt := range []struct {
		kind engine.Kind
		ends map[string]int
	}{
		{engine.KindErrorOK, map[string]int{"completed": 1}},
		{engine.KindStreamError, map[string]int{"completed": 1, "failed": 1}},
	} {
		require.NoError(t, studio.Faults.Set(engine.Fault{Kind: tt.kind, Path: "/v1/chat/completions"}))
		status, body := chat(n.http, 1234, "demo")
		require.Equal(t, http.StatusOK, status, body)
		require.Contains(t, body, `"error"`)
		require.Equal(t, i+1, asks(studio)["demo"], "an answer is not asked for again")
		require.Equal(t, tt.ends, n.jobs.awaitEnded(t, i+1), body)
	}
}

// What happens to a kept connection is not the client's business.
func TestKeptConnectionsOfTheEngineMayCloseAtAnyMoment(t *testing.T) {
	t.Parallel()
	const requests = 10
	n := startInference(t, engine.Config{})
	served := 0
	for _, kind := range []engine.Kind{engine.KindCut, engine.KindReset} {
		for _, at := range []engine.Moment{engine.AtAccept, engine.AtFirstByte, engine.AtHead, engine.AtBody, engine.AtEnd} {
			require.NoError(t, n.engine.Faults.Set(engine.Fault{Kind: kind, At: at, Times: 3}))
			var wg sync.WaitGroup
			for range requests {
				wg.Go(func() {
					if got := sight(chat(n.http, 11434, "demo")); got != whole {
						t.Errorf("%s at %s: got %s", kind, at, got)
					}
				})
			}
			wg.Wait()
			served += requests
		}
	}
	require.NoError(t, n.engine.Faults.Set(engine.Fault{Kind: engine.KindBothHeaders}))
	for range requests {
		n.requireServed(11434)
	}
	served += requests
	require.Equal(t, map[string]int{"completed": served}, n.jobs.awaitEnded(t, served))
}

func TestAnEngineThatHangsBeforeItsHeadersIsWaitedFor(t *testing.T) {
	t.Parallel()
	n := startInference(t, engine.Config{})
	n.engine.ResetWitness()
	require.NoError(t, n.engine.Faults.Set(engine.Fault{Kind: engine.KindHang, Path: "/v1/chat/completions"}))
	seen := make(chan string, 1)
	go func() { seen <- sight(chat(n.http, 11434, "demo")) }()
	n.awaitEngine("the request is there", func(r engine.Report) bool { return running(r) == 1 })
	pause(silence)
	require.Equal(t, 1, asks(n.engine)["demo"])
	n.engine.Faults.Clear()
	require.Equal(t, whole, <-seen)
	require.Equal(t, map[string]int{"completed": 1}, n.jobs.awaitEnded(t, 1))
}
