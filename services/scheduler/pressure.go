// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"time"

	"nvpair/shared/schedule"
)

const (
	// maxSampleAge is the age up to which a sample says something (JS-25).
	maxSampleAge = 10 * time.Second
	// smoothing is the weight of a new sample in the average (JS-26).
	smoothing = 0.35
)

// sample is one GPU reading of a node.
type sample struct {
	node    string
	percent float64
	valid   bool
	age     time.Duration // at receipt; not negative
}

// gauge turns the samples of one node into a pressure. Its zero value has seen
// none. An invalid or stale sample makes it forget all earlier ones.
type gauge struct {
	average    float64
	band       int
	freshUntil time.Time // included; zero without a sample
}

func (g *gauge) take(s sample, now time.Time) {
	until := now.Add(maxSampleAge - s.age)
	if !s.valid || now.After(until) {
		*g = gauge{}
		return
	}
	percent := min(max(s.percent, 0), 100)
	if g.fresh(now) {
		g.average = smoothing*percent + (1-smoothing)*g.average
		g.band = nextBand(g.average, g.band)
	} else {
		g.average = percent
		g.band = plainBand(percent)
	}
	g.freshUntil = until
}

// used reports whether there is a sample, fresh or not.
func (g *gauge) used() bool { return !g.freshUntil.IsZero() }

func (g *gauge) fresh(now time.Time) bool { return g.used() && !now.After(g.freshUntil) }

// pressure is PressureUnknown without a fresh sample: unknown must not look idle
// (JS-29).
func (g *gauge) pressure(now time.Time) int {
	if !g.fresh(now) {
		return schedule.PressureUnknown
	}
	return g.band
}

// plainBand is the band of an average in percent (JS-27).
func plainBand(average float64) int {
	switch {
	case average < 40:
		return 0
	case average < 70:
		return 1
	case average < 85:
		return 2
	}
	return 3
}

// leaveBelow is the average in percent below which a band is left (JS-28).
func leaveBelow(band int) float64 {
	switch band {
	case 1:
		return 35
	case 2:
		return 65
	}
	return 80
}

// nextBand is the band behind previous: up at once, down one band at a time, each
// only below its own threshold (JS-28).
func nextBand(average float64, previous int) int {
	band := plainBand(average)
	for previous > band && average < leaveBelow(previous) {
		previous--
	}
	return max(band, previous)
}
