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
	lanRestFor  = flag.Duration("bench.lanrest", 10*time.Minute, "how long three idle nodes are watched")
	lanStarts   = flag.Int("bench.lanstarts", 20, "starts of a tree beside two others")
	crowdFor    = flag.Duration("bench.crowd", time.Minute, "how long one node among 200 is watched")
	inventoryIn = flag.Duration("bench.inventory", 30*time.Second, "how long an inventory is asked for")
)

func TestDiscoveryFigures(t *testing.T) {
	if !*figuresWanted {
		t.Skip("needs -args -bench.figures, as make bench gives it")
	}
	harness.Require(t)
	build := buildOf(t)
	var table []figure
	var idle []resting
	// A figure that cannot be taken ends its own group only.
	t.Run("starts", func(t *testing.T) { table = append(table, measureAppearing(t)) })
	t.Run("crowd", func(t *testing.T) { table = append(table, measureCrowd(t, "200 nodes")...) })
	t.Run("crowd that asks", func(t *testing.T) {
		table = append(table, measureCrowd(t, "200 nodes that ask too", "-ask")...)
	})
	t.Run("inventory", func(t *testing.T) { table = append(table, measureInventory(t)...) })
	t.Run("rest", func(t *testing.T) {
		figures, processes := measureLANRest(t)
		table, idle = append(table, figures...), processes
	})
	out := t.Output()
	fmt.Fprintf(out, "%s, %s/%s, %d cores\n", build.GoVersion, runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	printTable(out, table)
	printResting(out, idle, *lanRestFor)
}
