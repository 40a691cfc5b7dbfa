// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/shared/schedule"
)

func TestBands(t *testing.T) {
	for _, tt := range []struct {
		average float64
		want    int
	}{
		{0, 0}, {39.9, 0}, {40, 1}, {69.9, 1}, {70, 2}, {84.9, 2}, {85, 3}, {100, 3},
	} {
		require.Equal(t, tt.want, plainBand(tt.average), tt)
	}
}

func TestBandsAreLeftOnlyBelowTheirOwnThreshold(t *testing.T) {
	for _, tt := range []struct {
		average        float64
		previous, want int
	}{
		{35, 1, 1},
		{34.9, 1, 0},
		{65, 2, 2},
		{64.9, 2, 1},
		{80, 3, 3},
		{79.9, 3, 2},
		{70, 1, 2},
		{90, 0, 3},
		{20, 3, 0},
		{66, 3, 2},
		{64, 3, 1},
		{35, 3, 1},
		{34.9, 3, 0},
		{35, 2, 1},
		{34.9, 2, 0},
		{39.9, 0, 0},
		{40, 0, 1},
		{85, 2, 3},
		{84.9, 2, 2},
		{84.9, 3, 3},
		{100, 3, 3},
		{0, 0, 0},
	} {
		require.Equal(t, tt.want, nextBand(tt.average, tt.previous), tt)
	}
}

func TestSamplesAreSmoothed(t *testing.T) {
	now := time.Now()
	var g gauge
	for i, want := range []float64{0, 35, 57.75} {
		g.take(sample{percent: []float64{0, 100, 100}[i], valid: true}, now)
		require.InDelta(t, want, g.average, 1e-9)
	}
	require.Equal(t, 1, g.pressure(now))

	var h gauge
	h.take(sample{percent: 1e300, valid: true}, now)
	require.InDelta(t, 100, h.average, 1e-9)
	h.take(sample{percent: -5, valid: true}, now)
	require.InDelta(t, 65, h.average, 1e-9)
	require.Equal(t, 2, h.pressure(now), "it held at 65")
}

// TestGapMakesTheNextSampleTheFirst: see JS-26.
func TestGapMakesTheNextSampleTheFirst(t *testing.T) {
	for name, gap := range map[string]func(g *gauge, now time.Time) time.Time{
		"invalid": func(g *gauge, now time.Time) time.Time {
			g.take(sample{percent: 100}, now)
			return now
		},
		"stale by now": func(_ *gauge, now time.Time) time.Time {
			return now.Add(maxSampleAge + time.Millisecond)
		},
		"stale at receipt": func(g *gauge, now time.Time) time.Time {
			g.take(sample{percent: 100, valid: true, age: maxSampleAge + time.Millisecond}, now)
			return now
		},
	} {
		now := time.Now()
		var g gauge
		g.take(sample{percent: 100, valid: true}, now)
		require.Equal(t, 3, g.pressure(now))
		now = gap(&g, now)
		require.Equal(t, schedule.PressureUnknown, g.pressure(now), name)
		g.take(sample{percent: 82, valid: true}, now)
		require.Equal(t, 2, g.pressure(now), "%s: nothing holds it in the band above", name)
		require.InDelta(t, 82, g.average, 1e-9, name)
	}
}

// TestFreshnessEndsAfterTenSeconds: see JS-25.
func TestFreshnessEndsAfterTenSeconds(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		msSince float64
		passed  time.Duration
		fresh   bool
	}{
		{0, 0, true},
		{0, 10 * time.Second, true},
		{0, 10001 * time.Millisecond, false},
		{10000, 0, true},
		{10001, 0, false},
		{4000, 6 * time.Second, true},
		{4000, 6001 * time.Millisecond, false},
		{-5000, 10 * time.Second, true},
		{-5000, 10001 * time.Millisecond, false},
		{1e300, 0, false},
	} {
		var g gauge
		g.take(sample{percent: 0, valid: true, age: ageOf(tt.msSince)}, now)
		require.Equal(t, tt.fresh, g.fresh(now.Add(tt.passed)), tt)
	}
}
