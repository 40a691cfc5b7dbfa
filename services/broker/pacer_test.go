// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMarksArePassedOnInTheirPeriodAndNoneIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var passed []time.Duration
		p := &pacer{every: 500 * time.Millisecond, mark: func() { passed = append(passed, time.Since(begin)) }}
		for range 100 { // for a second
			p.Mark()
			<-time.After(10 * time.Millisecond)
		}
		<-time.After(5 * time.Second)
		p.Mark()
		synctest.Wait()
		require.Equal(t, []time.Duration{0, 500 * time.Millisecond, time.Second, 6 * time.Second}, passed)
	})
}
