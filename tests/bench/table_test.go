// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"
)

// bar is what a figure is held against.
type bar struct {
	limit float64
	least bool // the limit is a lower bound
	none  bool // there is nothing to meet
}

func atMost(limit float64) bar  { return bar{limit: limit} }
func atLeast(limit float64) bar { return bar{limit: limit, least: true} }
func noBar() bar                { return bar{none: true} }

func (b bar) met(v float64) bool {
	if b.least {
		return v >= b.limit
	}
	return v <= b.limit
}

// figure is one row of the table.
type figure struct {
	what   string
	value  float64
	unit   string
	spread string // how far the samples lie apart, or what else belongs to the value
	bar    bar
	hint   string // where to look when the bar is missed
}

func (f figure) verdict() string {
	switch {
	case f.bar.none:
		return "-"
	case f.bar.met(f.value):
		return "yes"
	}
	return "MISSED"
}

func (f figure) barText() string {
	switch {
	case f.bar.none:
		return "-"
	case f.bar.least:
		return ">= " + quantity(f.bar.limit, f.unit)
	}
	return "<= " + quantity(f.bar.limit, f.unit)
}

// quantity writes a value with three significant digits, or all of those before the point.
func quantity(v float64, unit string) string {
	digits := strconv.FormatFloat(v, 'g', 3, 64)
	if v >= 100 {
		digits = strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strings.TrimSpace(digits + " " + unit)
}

// printTable writes the figures and, below, the hints of those that missed their bar.
func printTable(out io.Writer, figures []figure) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FIGURE\tMEASURED\tSPREAD\tBAR\tMET")
	for _, f := range figures {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", f.what, quantity(f.value, f.unit), f.spread, f.barText(), f.verdict())
	}
	_ = w.Flush() // out is the test's log, which does not fail
	for _, f := range figures {
		if f.verdict() == "MISSED" {
			fmt.Fprintf(out, "missed: %s: %s\n", f.what, f.hint)
		}
	}
}

// samples are the durations that one figure is made of.
type samples []time.Duration

// quantile returns the value below or at which the share q of the samples lies, by the nearest rank. There must be one.
func (s samples) quantile(q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(s))
	rank := int(q*float64(len(sorted)) + 0.5)
	return sorted[min(max(rank, 1), len(sorted))-1]
}

func (s samples) median() time.Duration { return s.quantile(0.5) }

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// span words the least and the greatest sample.
func (s samples) span() string {
	return fmt.Sprintf("%.1f .. %.1f ms", ms(slices.Min(s)), ms(slices.Max(s)))
}

// tail words what most samples stay below.
func (s samples) tail() string {
	return fmt.Sprintf("p95 %.0f, p99 %.0f us", us(s.quantile(0.95)), us(s.quantile(0.99)))
}

func TestQuantilesAreSamples(t *testing.T) {
	s := samples{5, 1, 4, 2, 3}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 3, 0.95: 5, 1: 5} {
		require.Equal(t, want, s.quantile(q), "quantile %v", q)
	}
	require.Equal(t, samples{5, 1, 4, 2, 3}, s, "the order of the samples must stay")
}

func TestAMissedBarIsSaidWithItsHint(t *testing.T) {
	var out strings.Builder
	printTable(&out, []figure{
		{"start", 54.32, "ms", "50 .. 60", atMost(400), "no"},
		{"rate", 59_999.4, "/s", "", atLeast(60_000), "look there"},
		{"free", 0.5, "us", "", noBar(), "no"},
	})
	require.Equal(t, strings.Join([]string{
		"FIGURE  MEASURED  SPREAD    BAR          MET",
		"start   54.3 ms   50 .. 60  <= 400 ms    yes",
		"rate    59999 /s            >= 60000 /s  MISSED",
		"free    0.5 us              -            -",
		"missed: rate: look there",
		"",
	}, "\n"), out.String())
}
