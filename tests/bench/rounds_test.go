// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"text/tabwriter"
	"time"

	"nvpair/tests/bench/load"
)

// turns is in how many parts a path is measured within a round: the shorter they are, the more alike is what else the
// machine does meanwhile.
const turns = 5

// row is one kind of load that all paths are compared under.
type row struct {
	what   string
	cell   load.Cell
	unit   string
	value  func(load.Result) float64
	added  bool // compared is what a path adds to the direct connection, not the value
	barFor map[string]bar
}

// Where to look when a ratio misses its bar.
const ratioHint = "tests/bench/README.md: how to profile the proxy; a wide spread is the machine's"

func rows(cell time.Duration) []row {
	whole := func(r load.Result) float64 { return us(r.Whole.P50) }
	first := func(r load.Result) float64 { return us(r.First.P50) }
	rate := func(r load.Result) float64 { return r.Rate() }
	bars := func(a, tree bar) map[string]bar { return map[string]bar{alone: a, wholeTree: tree} }
	return []row{
		{"JSON, 1 client, p50", load.Cell{Kind: load.KindJSON, BodyBytes: 200, Clients: 1, Warm: 50, For: cell * 3 / 4,
			Limit: 2000}, "us", whole, true, bars(atMost(2), atMost(2.5))},
		{"JSON, 16 clients", load.Cell{Kind: load.KindJSON, BodyBytes: 200, Clients: 16, Warm: 5, For: cell},
			"/s", rate, false, bars(atLeast(0.75), atLeast(0.5))},
		{"stream of 64, 16 clients", load.Cell{Kind: load.KindStream, BodyBytes: 200, Clients: 16, Warm: 2, For: cell},
			"/s", rate, false, bars(atLeast(0.85), atLeast(0.7))},
		{"200 kB prompt, 4 clients", load.Cell{Kind: load.KindJSON, BodyBytes: 200_000, Clients: 4, Warm: 5, For: cell},
			"/s", rate, false, bars(atLeast(0.95), atLeast(0.9))},
		{"stream, 1 client, first byte", load.Cell{Kind: load.KindPause, BodyBytes: 200, Clients: 1, Warm: 10,
			For: cell, Limit: 300}, "us", first, true, bars(atMost(1.5), atMost(2))},
	}
}

// readings are the values of one row by path, one a round.
type readings struct {
	values map[string][]float64
	costs  map[string]samples // CPU time of an answer, of what is between client and engine
}

// add takes the medians of one round.
func (r *readings) add(one readings) {
	for name := range one.values {
		r.values[name] = append(r.values[name], median(one.values[name]))
		r.costs[name] = append(r.costs[name], one.costs[name].median())
	}
}

func newReadings() readings { return readings{make(map[string][]float64), make(map[string]samples)} }

// round takes one round of a row and returns its turns: the paths follow each other at once, again and again, and each
// round begins with another.
func (r *row) round(t *testing.T, s *site, round int) readings {
	t.Helper()
	one, c := newReadings(), r.cell
	c.For, c.Limit = c.For/turns, c.Limit/turns
	for k := range turns * len(s.paths) {
		p := s.paths[(round+k)%len(s.paths)]
		result, cost := s.must(t, p, c)
		one.values[p.name] = append(one.values[p.name], r.value(result))
		one.costs[p.name] = append(one.costs[p.name], cost)
	}
	return one
}

// measureRounds takes every row on every path, round by round.
func measureRounds(t *testing.T, rounds int, all []row) ([]figure, []readings) {
	t.Helper()
	s := newSite(t, "paths", direct, nginx, alone, wholeTree)
	taken := make([]readings, len(all))
	for i := range taken {
		taken[i] = newReadings()
	}
	for round := range rounds {
		for i, r := range all {
			taken[i].add(r.round(t, s, round))
		}
	}
	var figures []figure
	for i, r := range all {
		figures = append(figures, r.figure(taken[i].values, alone), r.figure(taken[i].values, wholeTree))
	}
	figures = append(figures, s.paths[2].endsFigure("all rounds"), s.paths[3].endsFigure("all rounds"))
	s.end(t)
	return figures, taken
}

// figure compares a path with nginx.
func (r *row) figure(taken map[string][]float64, name string) figure {
	ratios := r.ratios(taken, name)
	f := figure{what: r.what + ", " + name, unit: "x nginx", bar: r.barFor[name], hint: ratioHint}
	if r.added {
		f.what = r.what + " added, " + name
	}
	if len(ratios) == 0 { // nginx added nothing that could be measured
		f.bar, f.spread = noBar(), "nginx adds nothing in any round"
		return f
	}
	f.value = median(ratios)
	f.spread = fmt.Sprintf("%.2f .. %.2f", slices.Min(ratios), slices.Max(ratios))
	if rounds := len(taken[name]); len(ratios) < rounds {
		f.spread += fmt.Sprintf(", %d of %d rounds: nginx adds nothing in the others", len(ratios), rounds)
	}
	if r.added {
		f.spread += fmt.Sprintf("; adds %.0f %s, nginx %.0f", median(added(taken, name)), r.unit, median(added(taken, nginx)))
	}
	return f
}

// ratios returns path to nginx for each round in which that can be said.
func (r *row) ratios(taken map[string][]float64, name string) []float64 {
	ours, theirs := taken[name], taken[nginx]
	if r.added {
		ours, theirs = added(taken, name), added(taken, nginx)
	}
	var ratios []float64
	for i := range ours {
		if theirs[i] > 0 {
			ratios = append(ratios, ours[i]/theirs[i])
		}
	}
	return ratios
}

// added returns what a path adds to the direct connection, by round.
func added(taken map[string][]float64, name string) []float64 {
	var list []float64
	for i, v := range taken[name] {
		list = append(list, v-taken[direct][i])
	}
	return list
}

// median returns the middle value, the greater one of two. There must be one.
func median(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }

// printReadings writes a line for each row and path: the median of its rounds, and of its ratios within each round.
func printReadings(out io.Writer, all []row, taken []readings) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "LOAD\tPATH\tMEDIAN\tSPREAD\tTO DIRECT\tTO NGINX\tCPU OF AN ANSWER")
	for i, r := range all {
		for _, name := range []string{direct, nginx, alone, wholeTree} {
			values, costs := taken[i].values, taken[i].costs[name]
			fmt.Fprintf(w, "%s\t%s\t%s\t%.0f .. %.0f\t%s\t%s\t%.0f (%.0f .. %.0f) us\n", r.what, name,
				quantity(median(values[name]), r.unit), slices.Min(values[name]), slices.Max(values[name]),
				againstText(values[name], values[direct]), againstText(values[name], values[nginx]),
				us(costs.median()), us(slices.Min(costs)), us(slices.Max(costs)))
		}
	}
	_ = w.Flush() // out is the test's log, which does not fail
}

// againstText words the ratios of two paths in the same rounds.
func againstText(values, base []float64) string {
	var ratios []float64
	for i := range values {
		ratios = append(ratios, values[i]/base[i])
	}
	return fmt.Sprintf("%.2f (%.2f .. %.2f)", median(ratios), slices.Min(ratios), slices.Max(ratios))
}
