// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"bufio"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// Sizes of the measurements of calls.
const (
	blocks          = 5    // of everything that is repeated, so that a busy moment shows as spread
	callsInBlock    = 1000 // of each kind, one at a time
	warmUpCalls     = 200
	pingsInBlock    = 100_000 // pipelined
	bigAnswerBytes  = 880_000
	bigAnswers      = 10
	pingStreamEvery = time.Millisecond
)

// kind is one kind of call that is made again and again.
type kind struct {
	what   string
	wire   *wire
	method string
	bar    bar
	hint   string
}

// measureLatency makes calls of all kinds in turn, so that what disturbs one disturbs all.
func measureLatency(t *testing.T, kinds []kind) []figure {
	t.Helper()
	all := make([]samples, len(kinds))
	medians := make([]samples, len(kinds)) // a block each
	callInTurn(t, kinds, warmUpCalls)
	for range blocks {
		for i, taken := range callInTurn(t, kinds, callsInBlock) {
			all[i] = append(all[i], taken...)
			medians[i] = append(medians[i], taken.median())
		}
	}
	var figures []figure
	for i, k := range kinds {
		spread := fmt.Sprintf("blocks %.0f .. %.0f, %s",
			us(slices.Min(medians[i])), us(slices.Max(medians[i])), all[i].tail())
		figures = append(figures, figure{k.what + ", p50", us(medians[i].median()), "us", spread, k.bar, k.hint})
	}
	return figures
}

// callInTurn makes n calls of each kind, one at a time, and returns how long they took.
func callInTurn(t *testing.T, kinds []kind, n int) []samples {
	t.Helper()
	taken := make([]samples, len(kinds))
	for range n {
		for i, k := range kinds {
			k.wire.within(callWithin)
			_, took, err := k.wire.call(k.method, "")
			if err != nil {
				t.Fatal(err)
			}
			taken[i] = append(taken[i], took)
		}
	}
	return taken
}

// measurePipelined writes pings without waiting and checks that each is answered exactly once.
func measurePipelined(t *testing.T, c *wire) figure {
	t.Helper()
	var rates []float64
	for range blocks {
		took, err := pipeline(c, pingsInBlock)
		if err != nil {
			t.Fatal(err)
		}
		rates = append(rates, pingsInBlock/took.Seconds())
	}
	slices.Sort(rates)
	return figure{
		"pings, pipelined, each answered once", rates[len(rates)/2], "/s",
		fmt.Sprintf("%.0f .. %.0f /s", rates[0], rates[len(rates)-1]), atLeast(60_000),
		"go test -bench PingPipelined ./internal/jsonrpc has the same without a process; profile the broker (README.md)",
	}
}

// pipeline sends n pings and returns the time until the last answer.
func pipeline(c *wire, n int) (time.Duration, error) {
	c.within(callWithin)
	first := c.last + 1
	c.last += n
	written := make(chan error, 1) // the one outcome
	begin := time.Now()
	go func() {
		w := bufio.NewWriterSize(c.w, 64<<10)
		var request []byte
		for id := first; id < first+n; id++ {
			request = frame(request[:0], id, "ping", "")
			_, _ = w.Write(request) // Flush has the error
		}
		written <- w.Flush()
	}()
	seen := make([]bool, n)
	for got := 0; got < n; {
		line, err := c.next()
		if err != nil {
			return 0, fmt.Errorf("%w after %d of %d answers", err, got, n)
		}
		id, ok := answered(line)
		switch {
		case !ok && isError(line):
			return 0, fmt.Errorf("a ping was answered %.200s", line)
		case !ok: // a notification
		case id < first || id >= first+n || seen[id-first]:
			return 0, fmt.Errorf("id %d answered twice or never asked: %.200s", id, line)
		default:
			seen[id-first] = true
			got++
		}
	}
	took := time.Since(begin)
	return took, <-written // the writer has written all that was answered
}

// measureBigAnswer reads a settings value of 880 kB back while pings go on at the same link.
func measureBigAnswer(t *testing.T, c *wire) []figure {
	t.Helper()
	c.within(callWithin)
	value := `{"value":"` + strings.Repeat("0123456789", bigAnswerBytes/10) + `"}`
	if _, _, err := c.call("settings/set-cluster-friendly-name", value); err != nil {
		t.Fatal(err)
	}
	var answers, waits, control samples
	for range bigAnswers { // in turn, so that a busy moment of the machine shows in both
		answer, wait, err := besidePings(c, "settings/get-cluster-friendly-name", bigAnswerBytes)
		if err != nil {
			t.Fatal(err)
		}
		answers, waits = append(answers, answer), append(waits, wait)
		_, wait, err = besidePings(c, "settings/get-force-ports", 0)
		if err != nil {
			t.Fatal(err)
		}
		control = append(control, wait)
	}
	return []figure{
		{"relayed answer of 880 kB", ms(answers.median()), "ms", answers.span(), atMost(60),
			"go test -bench 880k ./internal/jsonrpc has the parts; profile the broker and the settings worker (README.md)"},
		{"longest wait of a ping beside it", ms(slices.Max(waits)), "ms",
			fmt.Sprintf("median of %d %.1f; beside a small answer longest %.1f, median %.1f ms", bigAnswers,
				ms(waits.median()), ms(slices.Max(control)), ms(control.median())), atMost(20),
			"the machine was busy if the median is far below it; else trace the broker (README.md): what runs on its loops?"},
	}
}

// besidePings calls a method in the middle of a stream of pings, one each millisecond. It returns the time to its
// answer, which must have that many bytes at least, and the longest time that any of the pings took.
func besidePings(c *wire, method string, leastBytes int) (answer, longest time.Duration, err error) {
	const position, length = 20, 120 // of the call in the stream, which goes on for longer than the answer may take
	c.within(callWithin)
	first := c.last + 1
	c.last += length
	sent := make([]time.Time, length) // the writer's until it says that it is done
	written := make(chan error, 1)    // the one outcome
	go func() { written <- c.stream(sent, first, position, method) }()

	arrived := make([]time.Time, length)
	for got := 0; got < length; {
		line, err := c.next()
		if err != nil {
			return 0, 0, fmt.Errorf("%w after %d of %d answers", err, got, length)
		}
		id, ok := answered(line)
		switch {
		case !ok && isError(line):
			return 0, 0, fmt.Errorf("answered %.200s", line)
		case !ok: // a notification
		case id == first+position && len(line) < leastBytes:
			return 0, 0, fmt.Errorf("%s: answer of %d bytes, want %d", method, len(line), leastBytes)
		default:
			arrived[id-first] = time.Now()
			got++
		}
	}
	if err := <-written; err != nil {
		return 0, 0, err
	}
	for i := range arrived {
		if took := arrived[i].Sub(sent[i]); i == position {
			answer = took
		} else {
			longest = max(longest, took)
		}
	}
	return answer, longest, nil
}

// stream writes pings with ids from first on, one each millisecond, and in one position a call of another method. It
// notes in sent when it began to write each.
func (c *wire) stream(sent []time.Time, first, position int, method string) error {
	ticks := time.NewTicker(pingStreamEvery)
	defer ticks.Stop()
	for i := range sent {
		<-ticks.C // ends with the number of requests
		m := "ping"
		if i == position {
			m = method
		}
		sent[i] = time.Now()
		if _, err := c.w.Write(frame(nil, first+i, m, "")); err != nil {
			return err
		}
	}
	return nil
}
