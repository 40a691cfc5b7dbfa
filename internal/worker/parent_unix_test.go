// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package worker

import (
	"os"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestWatchOfALivingParentCanBeStopped(t *testing.T) {
	stop := WatchParent(func() { t.Error("the parent is alive") })
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(stop)
	}
	wg.Wait()
	stop()
}

func TestParentIsPolledWhereTheSystemDoesNotTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quit := make(chan struct{})
		polled := make(chan bool)
		go func() { polled <- pollParent(os.Getppid(), quit) }()
		synctest.Wait()
		close(quit)
		require.False(t, <-polled, "it is alive")

		const notOurs = 1 << 30
		require.True(t, pollParent(notOurs, make(chan struct{})), "it changed before the first look")
	})
}

func TestContextCanBeStoppedAgain(t *testing.T) {
	ctx, stop := Context(nil, 0)
	require.NoError(t, ctx.Err())
	stop()
	stop()
	require.Error(t, ctx.Err())
}
