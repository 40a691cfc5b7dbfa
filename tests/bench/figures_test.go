// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"debug/buildinfo"
	"flag"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/tests/harness"
)

// figuresWanted is a flag because its package is also part of runs over all packages, where figures mean nothing.
var figuresWanted = flag.Bool("bench.figures", false, "take the figures of the tree and print them (make bench)")

// repeats is how often a tree is started and stopped.
const repeats = 10

func TestFoundationFigures(t *testing.T) {
	if !*figuresWanted {
		t.Skip("needs -args -bench.figures, as make bench gives it")
	}
	harness.Require(t)
	build := buildOf(t)
	var table []figure
	var idle []resting
	workers := 0
	// A figure that cannot be taken ends its own group only.
	t.Run("start and stop", func(t *testing.T) { table = append(table, measureStartAndStop(t)...) })
	t.Run("calls", func(t *testing.T) {
		figures, n := measureCalls(t)
		table, workers = append(table, figures...), n
	})
	t.Run("rest", func(t *testing.T) { // alone: other trees would share this one's image and lower its PSS
		figures, processes := measureRest(t, harness.NewHost(t, "rest"))
		table, idle = append(table, figures...), processes
	})
	out := t.Output()
	fmt.Fprintf(out, "%d workers present, %s, %s/%s, %d cores\n", workers, build.GoVersion, runtime.GOOS, runtime.GOARCH,
		runtime.NumCPU())
	printTable(out, table)
	printResting(out, idle, restFor)
}

// buildOf returns how the executable was built. One with the race detector gives no figures.
func buildOf(t *testing.T) *buildinfo.BuildInfo {
	t.Helper()
	info, err := buildinfo.ReadFile(filepath.Join(harness.Bin(t), "nvpair"))
	require.NoError(t, err)
	for _, setting := range info.Settings {
		if setting.Key == "-race" && setting.Value == "true" {
			t.Fatal("the executable has the race detector: run the benchmarks without -race")
		}
	}
	return info
}

// measureStartAndStop starts and stops trees in one data directory, so that all but the first find it made.
func measureStartAndStop(t *testing.T) []figure {
	t.Helper()
	h := harness.NewHost(t, "start")
	var starts, announced, stops samples
	for range repeats {
		p, took := startBroker(t, h)
		starts = append(starts, took)
		awaitWorkers(t, p)
		announced = append(announced, time.Since(p.began))
		stops = append(stops, p.stop(t, h))
	}
	return []figure{
		{"start: exec to app:ready", ms(starts.median()), "ms", starts.span(), atMost(400),
			"README.md: what a start is made of"},
		{"start: exec to all workers announced", ms(announced.median()), "ms", announced.span(), noBar(), ""},
		{"stop: end of input to all gone", ms(stops.median()), "ms", stops.span(), atMost(300),
			"a worker that does not end with its input is said in the broker's log; README.md: what a stop waits for"},
	}
}

// measureCalls measures one tree by its standard streams and, in turn with it, one by the socket of nvpair serve.
func measureCalls(t *testing.T) (figures []figure, workers int) {
	t.Helper()
	h := harness.NewHost(t, "calls")
	p, _ := startBroker(t, h)
	workers = awaitWorkers(t, p)
	hubHost := harness.NewHost(t, "hub")
	serve, socket := startNode(t, hubHost)
	hub := dialHub(t, hubHost, socket)
	figures = measureLatency(t, []kind{
		{"ping, standard streams", p.wire, "ping", atMost(100), "README.md: profile the broker"},
		{"call of a worker, relayed", p.wire, "settings/get-force-ports", atMost(200), "README.md: profile the broker"},
		{"ping, socket of nvpair serve", hub, "ping", noBar(), ""},
	})
	figures = append(figures, measureCommand(t, hubHost), measurePipelined(t, p.wire))
	figures = append(figures, measureBigAnswer(t, p.wire)...)
	figures = append(figures, measureNodeStop(t, hubHost, serve))
	p.stop(t, h)
	return figures, workers
}
