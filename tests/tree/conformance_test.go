// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/tests/harness"
)

const (
	// answerWithin bounds the wait for what takes milliseconds on an idle machine.
	answerWithin = 30 * time.Second
	// endWithin bounds the end of a process, a whole tree included.
	endWithin = 20 * time.Second
	// goneWithin bounds what little is left to do once a program or command has told its end.
	goneWithin = 5 * time.Second
)

// program is a binary that speaks on its standard streams.
type program struct {
	binary  string
	args    []string
	opening []string // methods of its first frames
	ask     string   // a request with a result
	params  string   // of ask; its members may be missing, or others may be there
	limit   int      // longest frame that it takes, without the newline (WR-19, DEC-116)
	broker  bool     // the broker, not a worker
	silent  bool     // it has no ready
	unasked string   // a notification that may come at any time
}

// programs returns all workers, then the broker.
func programs() []program { return append(workers(), uiBroker()) }

func uiBroker() program {
	return program{binary: "nvpair-ui-broker", opening: []string{"app:ready"}, ask: "ping", params: "{}", limit: 1 << 20, broker: true}
}

func workers() []program {
	own := []string{"ready", "worker/hello"}
	return []program{
		{
			binary: "nvpair-node-scanner", opening: append(own[:2:2], "discovery:node-discovered"),
			ask: "discovery:get-nodes", params: "{}", limit: 1 << 20,
		},
		{
			binary: "nvpair-errors", args: []string{"--peer-sync"}, opening: append(own[:2:2], "discovery:subscribe"),
			ask: "errors:get-initial", params: "{}", limit: 8 << 20,
		},
		{
			binary: "nvpair-node-settings", opening: own,
			ask: "settings/get-cluster-id", params: "{}", limit: 1 << 20,
		},
		{
			binary: "nvpair-node-info", opening: own[1:], silent: true, unasked: "nodeinfo:observed-addresses",
			ask: "log/set-level", params: `{"level":"info"}`, limit: 1 << 20,
		},
		{
			binary: "nvpair-proxy", opening: own,
			ask: "log/set-level", params: `{"level":"info"}`, limit: 8 << 20,
		},
		{
			binary: "nvpair-job-scheduler", opening: own,
			ask: "scheduler:get-interval", params: "{}", limit: 8 << 20,
		},
		{
			binary: "nvpair-manual-nodes", opening: own,
			ask: "nodes/list", params: "{}", limit: 1 << 20,
		},
	}
}

func TestTheConformanceSuiteKnowsEveryBinary(t *testing.T) {
	t.Parallel()
	known := []string{"nvpair"} // speaks on no standard stream
	for _, b := range programs() {
		known = append(known, b.binary)
	}
	require.ElementsMatch(t, harness.Binaries, known)
}

// forEach runs a test for each program, on a host of its own.
func forEach(t *testing.T, list []program, test func(t *testing.T, h *harness.Host, b program)) {
	for _, b := range list {
		t.Run(b.binary, func(t *testing.T) {
			t.Parallel()
			test(t, harness.NewHost(t, "alpha"), b)
		})
	}
}

// start starts the program and takes its opening frames.
func (b program) start(t *testing.T, h *harness.Host, args ...string) (*harness.Proc, *harness.Wire) {
	t.Helper()
	cmd := h.Command(b.binary, append(args, b.args...)...)
	cmd.Dir = harness.Bin(t) // where the broker looks for its workers
	p := h.Start(cmd)
	w := b.wire(t, p)
	b.opened(t, w)
	return p, w
}

// wire speaks to the program. What may come unasked at any time is left out.
func (b program) wire(t *testing.T, p *harness.Proc) *harness.Wire {
	t.Helper()
	w := p.Wire(t)
	if b.unasked != "" {
		w.Ignore(b.unasked)
	}
	return w
}

// opened takes the opening frames and returns them.
func (b program) opened(t *testing.T, w *harness.Wire) []harness.Frame {
	t.Helper()
	var frames []harness.Frame
	for _, method := range b.opening {
		f := w.Next()
		require.Equal(t, method, f.Method, "in %s", f.Line)
		require.Nil(t, f.ID, "in %s", f.Line)
		frames = append(frames, f)
	}
	return frames
}

// works asks for something and requires its answer to be the very next frame.
func (b program) works(t *testing.T, w *harness.Wire, id string) {
	t.Helper()
	w.Send(harness.RequestLine(id, b.ask, b.params))
	f := w.Next()
	require.Equal(t, id, string(f.ID), "not the answer to %s: %s", b.ask, f.Line)
	require.NotNil(t, f.Result, f.Line)
}

// endsWithItsInput ends a program, and proves that its exit was orderly and that each line of its log is one.
func (b program) endsWithItsInput(t *testing.T, h *harness.Host, p *harness.Proc) {
	t.Helper()
	require.NoError(t, p.Stdin.Close())
	b.ended(t, h, p)
}

func (b program) ended(t *testing.T, h *harness.Host, p *harness.Proc) {
	t.Helper()
	require.Equal(t, 0, p.AwaitExit(endWithin))
	h.AwaitNone(goneWithin)
	line := regexp.MustCompile(`^\d\d:\d\d:\d\d\.\d{3} \[nvpair-[a-z-]+\] (DEBUG|INFO|WARN|ERROR) \S.*$`)
	for text := range strings.Lines(p.Stderr()) {
		require.Regexp(t, line, strings.TrimSuffix(text, "\n"))
	}
}

// versionOf returns what versions.json says of a component.
func versionOf(t *testing.T, component string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "versions.json"))
	require.NoError(t, err)
	var versions struct {
		Components map[string]string `json:"components"`
	}
	require.NoError(t, json.Unmarshal(text, &versions))
	require.NotEmpty(t, versions.Components[component], component)
	return versions.Components[component]
}

func TestEveryProgramAnnouncesItself(t *testing.T) {
	t.Parallel()
	forEach(t, programs(), func(t *testing.T, h *harness.Host, b program) {
		cmd := h.Command(b.binary, b.args...)
		cmd.Dir = harness.Bin(t)
		p := h.Start(cmd)
		w := b.wire(t, p)
		version := versionOf(t, b.binary)
		frames := b.opened(t, w)
		if !b.silent {
			require.JSONEq(t, fmt.Sprintf(`{"version":%q}`, version), string(frames[0].Params))
			frames = frames[1:]
		}
		if !b.broker {
			require.JSONEq(t, fmt.Sprintf(`{"liveness":1,"version":%q}`, version), string(frames[0].Params))
		}
		b.works(t, w, "1")
		b.endsWithItsInput(t, h, p)
	})
}

func TestEveryWorkerAnswersPings(t *testing.T) {
	t.Parallel()
	forEach(t, workers(), func(t *testing.T, h *harness.Host, b program) {
		p, w := b.start(t, h)
		for _, seq := range []string{"1", "2", "2", "9007199254740993"} {
			w.Send(harness.RequestLine("", "worker/ping", `{"seq":`+seq+`,"more":[]}`))
			f := w.Next()
			require.Equal(t, "worker/pong", f.Method, f.Line)
			require.Nil(t, f.ID, f.Line)
			require.Equal(t, `{"seq":`+seq+`}`, string(f.Params))
		}
		for _, bad := range []string{"", "null", "[]", `"x"`, `{"seq":"1"}`} {
			w.Send(harness.RequestLine("", "worker/ping", bad))
		}
		w.Send(harness.RequestLine("", "worker/ping", `{"seq":7}`))
		w.Await("the pong to 7", answerWithin, func(f harness.Frame) bool { return string(f.Params) == `{"seq":7}` })
		b.works(t, w, `"after"`)
		b.endsWithItsInput(t, h, p)
	})
}

func TestEveryProgramRefusesUnknownRequestsAndDropsUnknownNotifications(t *testing.T) {
	t.Parallel()
	forEach(t, programs(), func(t *testing.T, h *harness.Host, b program) {
		p, w := b.start(t, h)
		for i, method := range []string{"no-such-method", "no/such:method", "ready", "worker/hello", "worker/ping", `a"b\c`,
			"Naïve\n\u2028<&>"} {
			id := fmt.Sprintf(`{"n":%d}`, i)
			w.Send(harness.RequestLine("", method, `{"seq":"x"}`)) // no answer
			f := w.Call(id, method, `{"seq":1}`)
			require.NotNil(t, f.Error, "%s: %s", method, f.Line)
			require.Equal(t, -32601, f.Error.Code, method)
			require.Equal(t, "method not found: "+method, f.Error.Message)
		}
		require.Len(t, w.Frames(), len(b.opening)+7, "something was sent that nobody asked for")
		w.Send(`{"jsonrpc":"2.0","id":null,"method":"` + b.ask + `"}`) // no id, no answer
		w.Send(`{"jsonrpc":"2.0","id":5,"result":true}`, `{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}`)
		b.works(t, w, "5")
		b.endsWithItsInput(t, h, p)
	})
}

func TestEveryProgramSetsItsLogLevel(t *testing.T) {
	t.Parallel()
	forEach(t, programs(), func(t *testing.T, h *harness.Host, b program) {
		p, w := b.start(t, h)
		changed := regexp.QuoteMeta("["+b.binary+"] INFO log level changed") + ` level=`
		for _, tt := range []struct{ value, level string }{
			{`"debug"`, "debug"}, {`" INFO\t"`, "info"}, {`""`, "info"}, {`"Warning"`, "warn"}, {`"warn"`, "warn"},
			{`"err"`, "error"}, {`"ERROR"`, "error"},
		} {
			f := w.Call("1", "log/set-level", `{"level":`+tt.value+`,"more":1}`)
			require.Equal(t, `{"level":"`+tt.level+`"}`, string(f.Result), "%s: %s", tt.value, f.Line)
		}
		p.AwaitStderr(changed+"info\n", answerWithin)
		require.NotRegexp(t, changed+"(warn|error)", p.Stderr(), "the line is hidden by the new level")

		for _, bad := range []string{"", "5", `"debug"`, "[]", `{"level":5}`, `{"level":"loud"}`, `{"level":"debug info"}`} {
			f := w.Call("2", "log/set-level", bad)
			require.NotNil(t, f.Error, "%s: %s", bad, f.Line)
			require.Equal(t, -32602, f.Error.Code, "%s: %s", bad, f.Line)
			for _, name := range []string{"debug", "info", "warn", "error"} {
				require.Contains(t, f.Error.Message, name, bad)
			}
		}
		require.Contains(t, w.Call("3", "log/set-level", `{"level":"loud"}`).Error.Message, "loud")

		// As a notification: silent, with the same effect. That nothing changed before shows in what was hidden.
		w.Send(harness.RequestLine("", "log/set-level", `{"level":"debug"}`))
		w.Send(harness.RequestLine("", "log/set-level", `{"level":"loud"}`), harness.RequestLine("", "nobody/knows", ""))
		b.works(t, w, "4")
		p.AwaitStderr(changed+"debug\n", answerWithin)
		p.AwaitStderr(regexp.QuoteMeta("["+b.binary+"] WARN log level not changed")+" .*loud", answerWithin)
		p.AwaitStderr(regexp.QuoteMeta("["+b.binary+"] DEBUG ")+".*notification.*method=nobody/knows", answerWithin)
		b.endsWithItsInput(t, h, p)
	})
}
