// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEventuallyReturnsOnceTheConditionHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		Eventually(t, time.Minute, "three looks", func() bool { return time.Since(begin) >= 25*time.Millisecond })
		require.Equal(t, 30*time.Millisecond, time.Since(begin))
	})
}

func TestEventuallyFailsWithWhatItWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		fake := &fakeTB{TB: t}
		fake.run(func() { Eventually(fake, 5*time.Second, "the moon", func() bool { return false }) })
		require.Equal(t, []string{"not within 5s: the moon"}, fake.reports)
		require.Equal(t, 5*time.Second, time.Since(begin))
	})
}

func TestANeedThatIsLackingIsAFailureOnlyInCI(t *testing.T) {
	t.Setenv("CI", "true")
	fake := &fakeTB{TB: t}
	fake.run(func() { Lacking(fake, "a moon") })
	require.Equal(t, []string{"needs a moon, and CI must not skip it"}, fake.reports)

	t.Setenv("CI", "")
	fake = &fakeTB{TB: t}
	fake.run(func() { Lacking(fake, "a moon") })
	require.Empty(t, fake.reports)
	require.Equal(t, "needs a moon", strings.Join(fake.logs, ""))
}
