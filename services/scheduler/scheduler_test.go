// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/worker"
	"nvpair/internal/worker/workertest"
	"nvpair/shared/schedule"
)

func TestWorkedTrace(t *testing.T) {
	bubble(t, time.Hour, func(c *client) { c.play("trace.frames") })
}

// TestFirstRankingKnowsWhatWasReplayed sends the inputs in the order in which
// they are replayed to a new scheduler (JS-52).
func TestFirstRankingKnowsWhatWasReplayed(t *testing.T) {
	bubble(t, 0, func(c *client) {
		c.place("1", "a")
		c.telemetry("b", 90)
		c.telemetry("gone", 0)
		c.Quiet()
		c.list("b", "a", "c")
		require.Equal(t, "c 0/1, a 1/1, b 0/3", c.out())
		c.pass(outputWindow)
		c.list("b", "a", "c", "gone") // its telemetry was dropped with the first list (JS-15)
		require.Equal(t, "c 0/1, gone 0/1, a 1/1, b 0/3", c.out())
		c.Quiet()
	})
}

func TestSilentUntilANodeIsKnown(t *testing.T) {
	bubble(t, 0, func(c *client) {
		c.list()
		c.place("1", "a")
		c.telemetry("a", 0)
		c.list()
		c.pass(time.Minute)
		c.Quiet()
		require.Equal(t, `{"result":{"interval_ms":1000,"engines":{`+
			`"lmstudio":{"engine":"lmstudio","emitted":[],"lastEmittedAt":0},`+
			`"ollama":{"engine":"ollama","emitted":[],"lastEmittedAt":0}}}}`, c.Call("scheduler:get-status", "null"))
	})
}

func TestChangesWithinTheWindowComeAtItsEnd(t *testing.T) {
	bubble(t, time.Hour, func(c *client) {
		begin := time.Now()
		c.list("a", "b")
		require.Equal(t, "a 0/1, b 0/1", c.out())
		require.Zero(t, time.Since(begin))

		c.pass(10 * time.Millisecond)
		for i := range 5 {
			c.place(fmt.Sprint(i), "a")
		}
		c.Quiet()
		require.Equal(t, "b 0/1, a 5/1", ranking(t, "ollama", c.Next()))
		require.Equal(t, outputWindow, time.Since(begin))
		require.Equal(t, "b 0/1, a 5/1", ranking(t, "lmstudio", c.Next()))

		c.pass(outputWindow)
		begin = time.Now()
		c.place("b", "b") // at once: the window is over
		require.Equal(t, "b 1/1, a 5/1", c.out())
		require.Zero(t, time.Since(begin))
		c.Quiet()
	})
}

func TestChangeUndoneWithinTheWindowIsNotSent(t *testing.T) {
	bubble(t, time.Hour, func(c *client) {
		c.list("a", "b")
		c.out()
		c.place("1", "a")
		c.upsert("1", "completed", "a")
		c.pass(time.Second)
		c.Quiet()
	})
}

func TestParentThatDoesNotReadGetsTheNewestRanking(t *testing.T) {
	bubble(t, time.Hour, func(c *client) {
		c.list("a", "b")
		for i := range 500 { // nothing is read all the while
			c.place(fmt.Sprint(i), "a")
			c.pass(time.Millisecond)
		}
		last := ""
		frames := 0
		for ; last != "b 0/1, a 500/1"; frames++ {
			last = ranking(t, "ollama", c.Next())
			require.Equal(t, last, ranking(t, "lmstudio", c.Next()))
		}
		require.LessOrEqual(t, frames, 3)
		c.pass(outputWindow)
		c.Quiet()
	})
}

// TestStaleTelemetryIsNoticedWithinAnInterval: see JS-25 and JS-32.
func TestStaleTelemetryIsNoticedWithinAnInterval(t *testing.T) {
	for _, tt := range []struct {
		interval, want time.Duration
	}{
		{0, 11 * time.Second}, // at 10 s it is still fresh
		{300 * time.Millisecond, 10200 * time.Millisecond},
		{time.Millisecond, 10200 * time.Millisecond}, // raised to 200 ms
		{time.Hour, time.Hour},
	} {
		bubble(t, tt.interval, func(c *client) {
			c.Patience = 2 * time.Hour
			c.list("a", "b")
			c.out()
			c.pass(outputWindow)
			begin := time.Now()
			c.telemetry("b", 0)
			require.Equal(t, "b 0/0, a 0/1", c.out())
			require.Equal(t, "a 0/1, b 0/1", ranking(t, "ollama", c.Next()))
			require.Equal(t, tt.want, time.Since(begin), "interval %v", tt.interval)
			c.Next()
			c.pass(outputWindow)
			c.Quiet()
		})
	}
}

func TestStaleTelemetryIsNoticedWithAnyRecompute(t *testing.T) {
	bubble(t, time.Hour, func(c *client) {
		c.list("a", "b")
		c.out()
		c.pass(outputWindow)
		c.telemetry("b", 0)
		require.Equal(t, "b 0/0, a 0/1", c.out())
		c.pass(maxSampleAge)
		c.place("1", "a")
		require.Equal(t, "b 0/0, a 1/1", c.out())
		c.pass(time.Second)
		c.place("2", "a")
		require.Equal(t, "b 0/1, a 2/1", c.out())
	})
}

// TestNoTimerWithoutTelemetryThatCanBecomeStale looks at the timers themselves.
func TestNoTimerWithoutTelemetryThatCanBecomeStale(t *testing.T) {
	bubble(t, 0, func(c *client) {
		open := func() bool {
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.roundOpen || c.windowOpen
		}
		require.False(t, open())
		c.list("a", "b")
		c.out()
		c.place("1", "a")
		require.True(t, open(), "the window")
		c.outWithin(outputWindow)
		require.False(t, open())
		c.telemetry("b", 60) // as if it were unknown: it may become stale unseen
		require.False(t, open())
		c.telemetry("c", 0) // not listed
		require.False(t, open())
		c.pass(outputWindow)
		c.telemetry("b", 0)
		require.False(t, open(), "the average is still in the middle")
		for range 8 {
			c.telemetry("b", 0)
		}
		c.outWithin(outputWindow)
		require.True(t, open())
		c.outWithin(12 * time.Second)
		require.False(t, open())
	})
}

// outWithin is out within d, not at once.
func (c *client) outWithin(d time.Duration) {
	c.t.Helper()
	begin := time.Now()
	ranking(c.t, "ollama", c.Next())
	ranking(c.t, "lmstudio", c.Next())
	require.LessOrEqual(c.t, time.Since(begin), d)
	synctest.Wait()
}

func TestIntervalIsReadAndSet(t *testing.T) {
	bubble(t, 0, func(c *client) {
		const refused = `{"error":{"code":-32602,"message":"invalid params: expected {\"interval_ms\": <positive int>}"}}`
		for _, tt := range []struct{ params, want string }{
			{`{"interval_ms":5000}`, "5000"},
			{`{"interval_ms":200}`, "200"},
			{`{"interval_ms":199}`, "200"},
			{`{"interval_ms":1}`, "200"},
			{`{"interval_ms":9223372036854775807}`, "86400000"},
			{`{"interval_ms":300,"more":1}`, "300"},
			{`{"interval_ms":0}`, ""},
			{`{"interval_ms":-1}`, ""},
			{`{"interval_ms":1.5}`, ""},
			{`{"interval_ms":"500"}`, ""},
			{`{"interval_ms":null}`, ""},
			{`{}`, ""},
			{`[500]`, ""},
			{`null`, ""},
			{`500`, ""},
		} {
			want := `{"result":{"interval_ms":` + tt.want + `}}`
			if tt.want == "" {
				want = refused
			}
			require.Equal(t, want, c.Call("scheduler:set-interval", tt.params), tt.params)
		}
		require.Equal(t, `{"result":{"interval_ms":300}}`, c.Call("scheduler:get-interval", "null"))
		c.Send(`{"jsonrpc":"2.0","id":7,"method":"scheduler:set-interval"}`)
		require.Contains(t, c.Next(), `"code":-32602`)
		c.Quiet()
	})
}

// TestNewIntervalAppliesFromTheNextWait: see JS-46.
func TestNewIntervalAppliesFromTheNextWait(t *testing.T) {
	bubble(t, 7*time.Second, func(c *client) {
		c.list("a")
		c.out()
		c.pass(outputWindow)
		begin := time.Now()
		c.telemetry("a", 0) // the first wait, of 7 s, begins
		c.out()
		c.Call("scheduler:set-interval", `{"interval_ms":4000}`)
		require.Equal(t, "a 0/1", ranking(t, "ollama", c.Next()))
		require.Equal(t, 11*time.Second, time.Since(begin)) // 7 s, then 4 s
		c.Next()
	})
}

func TestTicksForceAnOutputAndCollapse(t *testing.T) {
	const ticked = `{"result":{"ticked":true}}`
	bubble(t, time.Hour, func(c *client) {
		require.Equal(t, ticked, c.Call("scheduler:tick", "null"))
		require.Empty(t, c.out()) // even when no node was ever known
		c.pass(outputWindow)
		c.list("a")
		require.Equal(t, "a 0/1", c.out())
		for range 5 {
			require.Equal(t, ticked, c.Call("scheduler:tick", "{}"))
		}
		c.Quiet()
		require.Equal(t, "a 0/1", ranking(t, "ollama", c.Next()))
		require.Equal(t, "a 0/1", ranking(t, "lmstudio", c.Next()))
		c.pass(time.Minute)
		c.Quiet()
	})
}

func TestStatusShowsWhatWasDelivered(t *testing.T) {
	bubble(t, 250*time.Millisecond, func(c *client) {
		c.list("a", "b")
		c.out()
		sent := time.Now().UnixMilli()
		c.pass(time.Second)
		var answer struct{ Result schedule.Status }
		require.NoError(t, json.Unmarshal([]byte(c.Call("scheduler:get-status", "null")), &answer))
		require.EqualValues(t, 250, answer.Result.IntervalMillis)
		require.Len(t, answer.Result.Engines, 2)
		for id, e := range answer.Result.Engines {
			require.Equal(t, id, e.Engine)
			require.Equal(t, sent, e.LastEmittedMillis)
			require.Equal(t, "a 0/1, b 0/1", items(e.Emitted))
		}
	})
}

func TestMessagesOfTheWrongKindHaveNoEffect(t *testing.T) {
	bubble(t, 0, func(c *client) {
		for _, method := range []string{
			"discovery:nodes-changed", "workloads:upsert", "workloads:remove", "scheduler:telemetry",
			"schedule:priority", "node/set-priority", "scheduler:stop",
		} {
			require.Equal(t, `{"error":{"code":-32601,"message":"method not found: `+method+`"}}`,
				c.Call(method, `[{"hostUuid":"a"}]`))
		}
		for _, method := range []string{
			"scheduler:tick", "scheduler:get-status", "scheduler:get-interval", "scheduler:set-interval", "shutdown",
			"discovery:nodes", "unknown",
		} {
			c.Notify(method, `{"interval_ms":5000}`)
		}
		c.Send("garbage")
		c.Send(`{"jsonrpc":"2.0","id":1,"result":[]}`) // a response to nothing
		c.Quiet()
		require.Equal(t, `{"result":{"interval_ms":1000}}`, c.Call("scheduler:get-interval", "null"))
	})
}

func TestUnusableInputChangesNothingAndIsLoggedOnceAMinute(t *testing.T) {
	bubble(t, time.Hour, func(c *client) {
		c.list("a", "b")
		c.out()
		c.pass(outputWindow)
		for _, bad := range unusable {
			c.Notify(bad.method, bad.params)
		}
		c.Send(`{"jsonrpc":"2.0","method":"discovery:nodes-changed"}`)
		c.pass(time.Minute)
		c.Quiet()
		c.Notify("workloads:upsert", `{}`)
		c.Quiet()
		require.NoError(t, c.Stop())
		require.Equal(t, 2, strings.Count(c.Log.String(), "WARN"), c.Log.String())
		require.Contains(t, c.Log.String(), fmt.Sprintf("inputs=%d\n", len(unusable)+1))
	})
}

func TestOrderChangesAreLogged(t *testing.T) {
	bubble(t, time.Hour, func(c *client) {
		c.list("a", "b")
		c.out()
		c.pass(outputWindow)
		c.place("1", "b") // the same order
		c.out()
		c.pass(outputWindow)
		c.place("2", "a") // again
		c.out()
		c.pass(outputWindow)
		c.place("3", "a")
		require.Equal(t, "b 1/1, a 2/1", c.out())
		c.pass(outputWindow)
		c.list()
		c.out()
		require.NoError(t, c.Stop())
		var lines []string
		for line := range strings.Lines(c.Log.String()) {
			if _, text, ok := strings.Cut(line, " INFO "); ok {
				lines = append(lines, strings.TrimSpace(text))
			}
		}
		require.Equal(t, []string{
			"order changed first=a nodes=2",
			"order changed first=b nodes=2",
			`order changed first="" nodes=0`,
		}, lines)
	})
}

func TestShutdownIsAnswered(t *testing.T) {
	bubble(t, 0, func(c *client) {
		require.Equal(t, `{"result":null}`, c.Call("shutdown", "null"))
		require.NoError(t, c.Wait())
	})
}

func TestCommandLine(t *testing.T) {
	const announced = workertest.Ready + "\n" + workertest.Hello + "\n"
	interval := func(ms int) string {
		return announced + fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":{"interval_ms":%d}}`, ms) + "\n"
	}
	for _, tt := range []struct {
		args    []string
		code    int
		out, er string
	}{
		{[]string{"--version"}, 0, "1.2.3\n", ""},
		{[]string{"--no-such-flag"}, 2, "", "no-such-flag"},
		{[]string{"extra"}, 2, "", "extra"},
		{[]string{"--interval", "soon"}, 2, "", "-interval"},
		{[]string{"--log-level", "warn"}, 0, interval(1000), ""},
		{[]string{"--interval", "1h"}, 0, interval(3600000), ""},
		{[]string{"--interval", "199ms"}, 0, interval(200), ""},
		{[]string{"--interval", "0"}, 0, interval(200), ""},
		{[]string{"--interval", "-5s"}, 0, interval(200), ""},
		{[]string{"--interval", "1000h"}, 0, interval(24 * 3600000), ""},
	} {
		in := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"scheduler:get-interval"}` + "\n")
		var out, errs bytes.Buffer
		code := Main(tt.args, "1.2.3", worker.Streams{In: in, Out: &out, Err: &errs})
		require.Equal(t, tt.code, code, "%q: %s", tt.args, errs.String())
		require.Equal(t, tt.out, out.String(), tt.args)
		require.Contains(t, errs.String(), tt.er, tt.args)
	}
}

// TestLongestRankingFitsAFrameOfOneMebibyte has names of characters that take
// the most room in JSON.
func TestLongestRankingFitsAFrameOfOneMebibyte(t *testing.T) {
	bubble(t, time.Hour, func(c *client) {
		var ids []string
		for i := range schedule.MaxNodes {
			ids = append(ids, fmt.Sprintf("%03d", i)+strings.Repeat("\x01", maxIDBytes-3))
		}
		c.list(ids...)
		frame := c.Next()
		require.Less(t, len(frame), 1<<20)
		require.Greater(t, len(frame), 3<<18)
		c.Next()
	})
}
