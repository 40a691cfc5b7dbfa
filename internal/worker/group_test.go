// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAGroupThatEndsStartsNothing(t *testing.T) {
	var g Group
	var ran, late atomic.Int64
	var starters sync.WaitGroup
	for range 4 {
		starters.Go(func() {
			for range 100 {
				g.Go(func() { ran.Add(1) })
				g.Join()()
			}
		})
	}
	g.Wait()
	before := ran.Load()
	starters.Wait()
	g.Go(func() { late.Add(1) })
	g.Join()()
	g.Wait()
	require.Equal(t, before, ran.Load())
	require.Zero(t, late.Load())
}
