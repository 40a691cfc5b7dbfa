// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/shared/discovery"
)

func sample(host string, use float64, age int64) discovery.Telemetry {
	return discovery.Telemetry{HostUUID: host, GPUUse: use, Valid: true, AgeMillis: age}
}

func invalid(host string) discovery.Telemetry { return discovery.Telemetry{HostUUID: host} }

func TestScannersObservationOutranks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewTelemetry()
		got, ok := c.Observe(ManualTelemetry, sample("a", 10, 0))
		require.True(t, ok)
		require.Equal(t, sample("a", 10, 0), got)

		got, ok = c.Observe(ScannerTelemetry, invalid("a")) // even if it is invalid
		require.True(t, ok)
		require.Equal(t, invalid("a"), got)

		_, ok = c.Observe(ManualTelemetry, sample("a", 20, 0))
		require.False(t, ok)
		require.Equal(t, []discovery.Telemetry{invalid("a")}, c.All())
	})
}

func TestForgottenSourceLeavesTheOtherAtItsOwnAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewTelemetry()
		c.Observe(ManualTelemetry, sample("a", 10, 100))
		await(time.Second)
		c.Observe(ScannerTelemetry, sample("a", 50, 0))
		await(time.Second)
		got, ok := c.Forget(ScannerTelemetry, "a")
		require.True(t, ok)
		require.Equal(t, sample("a", 10, 2100), got)

		got, ok = c.Forget(ManualTelemetry, "a")
		require.True(t, ok)
		require.Equal(t, invalid("a"), got) // so that the scheduler forgets it at once
		require.Empty(t, c.All())

		_, ok = c.Forget(ManualTelemetry, "a")
		require.False(t, ok)
	})
}

func TestForgettingWhatDidNotCountChangesNothing(t *testing.T) {
	c := NewTelemetry()
	c.Observe(ManualTelemetry, sample("a", 10, 0))
	c.Observe(ScannerTelemetry, sample("a", 50, 0))
	_, ok := c.Forget(ManualTelemetry, "a")
	require.False(t, ok)
	got, ok := c.Forget(ScannerTelemetry, "a")
	require.True(t, ok)
	require.Equal(t, invalid("a"), got)
}

func TestAgeAdvancesAndSaturates(t *testing.T) {
	for _, tt := range []struct {
		in   discovery.Telemetry
		want discovery.Telemetry // after 1.5 s
	}{
		{sample("a", 10, 0), sample("a", 10, 1500)},
		{sample("a", 10, -7), sample("a", 10, 1500)}, // negative is 0
		{sample("a", 10, math.MaxInt64-1000), sample("a", 10, math.MaxInt64)},
		{sample("a", 10.5, 5), sample("a", 11, 1505)}, // an integer for the scheduler
		{discovery.Telemetry{HostUUID: "a", GPUUse: 7, AgeMillis: 99}, discovery.Telemetry{HostUUID: "a", GPUUse: 7}},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := NewTelemetry()
			c.Observe(ScannerTelemetry, tt.in)
			await(1500 * time.Millisecond)
			require.Equal(t, []discovery.Telemetry{tt.want}, c.All())
		})
	}
}

func TestObservationWithoutHostIsIgnored(t *testing.T) {
	c := NewTelemetry()
	_, ok := c.Observe(ScannerTelemetry, sample("", 10, 0))
	require.False(t, ok)
	require.Empty(t, c.All())
}

func TestAllIsSortedAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewTelemetry()
		for n := range maxHosts {
			c.Observe(ScannerTelemetry, sample(strconv.Itoa(1000+n), 1, 0))
			await(time.Millisecond)
		}
		c.Observe(ManualTelemetry, sample("1000", 1, 0)) // heard of again
		await(time.Millisecond)
		c.Observe(ScannerTelemetry, sample("0999", 1, 0))
		all := c.All()
		require.Len(t, all, maxHosts)
		require.Equal(t, "0999", all[0].HostUUID)
		require.Equal(t, "1000", all[1].HostUUID)
		require.Equal(t, "1002", all[2].HostUUID)
	})
}
