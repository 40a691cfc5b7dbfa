// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"

	"nvpair/tests/harness"
)

// For short trials; the bars are meant for the defaults.
var (
	roundsWanted = flag.Int("bench.rounds", 7, "rounds over the paths to the engine")
	cellFor      = flag.Duration("bench.cell", 2*time.Second, "time of one path in one round")
)

func TestInferenceFigures(t *testing.T) {
	if !*figuresWanted {
		t.Skip("needs -args -bench.figures, as make bench gives it")
	}
	harness.Require(t)
	build := buildOf(t)
	version := nginxVersion(t)
	var table []figure
	var taken []readings
	all := rows(*cellFor)
	// A figure that cannot be taken ends its own group only.
	t.Run("paths", func(t *testing.T) {
		figures, values := measureRounds(t, *roundsWanted, all)
		table, taken = append(table, figures...), values
	})
	for _, name := range []string{nginx, alone, wholeTree} {
		t.Run("streams, "+name, func(t *testing.T) { table = append(table, measureStreams(t, name)...) })
	}
	t.Run("scheduler", func(t *testing.T) { table = append(table, measureScheduler(t)...) })
	out := t.Output()
	fmt.Fprintf(out, "%d rounds of %v, a stand-in as engine, %s, %s/%s, %d cores, %s with this configuration:\n%s",
		*roundsWanted, *cellFor, build.GoVersion, runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), version, nginxConfig())
	printTable(out, table)
	if taken != nil {
		printReadings(out, all, taken)
	}
}
