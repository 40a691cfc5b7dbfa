// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/tests/harness"
)

// tally is a client that keeps count: of each request it knows how often it was
// answered. Its methods but send belong to the test's goroutine.
type tally struct {
	t    *testing.T
	wire *harness.Wire
	out  *os.File // writes of one call are not interleaved

	mu     sync.Mutex // guards the rest
	last   int        // id of the newest request
	method map[string]string
	answer map[string][]harness.Frame // by id
	notes  map[string][]json.RawMessage
	seen   int // frames of the wire that are in here
}

func newTally(t *testing.T, p *harness.Proc) *tally {
	return &tally{
		t: t, wire: p.Wire(t), out: p.Stdin,
		method: make(map[string]string), answer: make(map[string][]harness.Frame),
		notes: make(map[string][]json.RawMessage),
	}
}

// send sends a request, with params as JSON text or "", and returns its id.
func (c *tally) send(method, params string) (id string, err error) {
	c.mu.Lock()
	c.last++
	id = strconv.Itoa(c.last)
	c.method[id] = method
	c.mu.Unlock()
	_, err = c.out.WriteString(harness.RequestLine(id, method, params) + "\n")
	return id, err
}

// answers returns the answers to a request so far.
func (c *tally) answers(id string) []harness.Frame {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.takeLocked()
	return c.answer[id]
}

func (c *tally) notifications(method string) []json.RawMessage {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.takeLocked()
	return c.notes[method]
}

// takeLocked sorts what has arrived.
func (c *tally) takeLocked() {
	frames := c.wire.Frames()
	for _, f := range frames[c.seen:] {
		if f.Method != "" {
			c.notes[f.Method] = append(c.notes[f.Method], f.Params)
			continue
		}
		c.answer[string(f.ID)] = append(c.answer[string(f.ID)], f)
	}
	c.seen = len(frames)
}

// call sends a request and waits for its answer.
func (c *tally) call(method, params string) harness.Frame {
	c.t.Helper()
	id, err := c.send(method, params)
	require.NoError(c.t, err)
	return c.awaitAnswer(id)
}

func (c *tally) awaitAnswer(id string) harness.Frame {
	c.t.Helper()
	harness.Eventually(c.t, patience, "an answer to request "+id, func() bool { return len(c.answers(id)) > 0 })
	return c.answers(id)[0]
}

// must is call for an answer that must be a result; into may be nil.
func (c *tally) must(method, params string, into any) {
	c.t.Helper()
	f := c.call(method, params)
	require.Nil(c.t, f.Error, "%s: %s", method, f.Line)
	if into != nil {
		require.NoError(c.t, json.Unmarshal(f.Result, into))
	}
}

// await waits for a notification that satisfies ok, whether it has arrived
// already or not.
func (c *tally) await(method string, ok func(json.RawMessage) bool) {
	c.t.Helper()
	harness.Eventually(c.t, patience, "a notification "+method+" that satisfies", func() bool {
		return slices.ContainsFunc(c.notifications(method), ok)
	})
}

// awaitAll waits until each request has an answer.
func (c *tally) awaitAll() {
	c.t.Helper()
	harness.Eventually(c.t, patience, "an answer to each request", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.takeLocked()
		return len(c.answer) >= len(c.method)
	})
}

// requireOneAnswerEach proves that each request was answered once: with a result,
// or with the error of what could not be asked.
func (c *tally) requireOneAnswerEach() {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.takeLocked()
	for id, method := range c.method {
		require.Len(c.t, c.answer[id], 1, "answers to request %s, %s", id, method)
		if e := c.answer[id][0].Error; e != nil {
			require.Equal(c.t, -32000, e.Code, "%s: %s", method, e.Message)
			require.Contains(c.t, []string{"settings/get-cluster-id", "errors:get-initial"}, method, e.Message)
		}
	}
	require.Len(c.t, c.answer, len(c.method), "answers to requests that were never made")
}

// outcomes counts the results and the errors of a method.
func (c *tally) outcomes(method string) (results, errors int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.takeLocked()
	for id, m := range c.method {
		for _, f := range c.answer[id] {
			switch {
			case m != method:
			case f.Error != nil:
				errors++
			default:
				results++
			}
		}
	}
	return results, errors
}

// traffic keeps requests on their way, own and relayed ones, until stop is called,
// which returns how many there were.
func (c *tally) traffic() (stop func() int) {
	const every, batch = 5 * time.Millisecond, 2
	quit, done := make(chan struct{}), make(chan int, 1)
	go func() {
		ticks := time.NewTicker(every)
		defer ticks.Stop()
		for n := 0; ; {
			select {
			case <-ticks.C:
			case <-quit:
				done <- n
				return
			}
			for range batch {
				for _, method := range []string{"settings/get-cluster-id", "ping", "errors:get-initial"} {
					if _, err := c.send(method, ""); err != nil {
						c.t.Errorf("send %s: %v", method, err)
						done <- n
						return
					}
					n++
				}
			}
		}
	}()
	stop = sync.OnceValue(func() int { close(quit); return <-done })
	c.t.Cleanup(func() { stop() })
	return stop
}
