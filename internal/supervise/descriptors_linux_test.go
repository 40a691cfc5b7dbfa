// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// descriptors returns what this process has open.
func descriptors(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	var open []string
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil { // but for that of ReadDir
			open = append(open, e.Name()+" "+target)
		}
	}
	return open
}

func TestTwentyCrashesLeaveNoDescriptor(t *testing.T) {
	crash := func(restarts int) {
		p := policy()
		p.Budget, p.FirstDelay = restarts, time.Microsecond
		w := start(t, p, "exit 1")
		w.await("exhausted")
		w.stop(never)
	}
	crash(0) // opens what the runtime keeps
	before := descriptors(t)
	crash(20)
	require.Equal(t, before, descriptors(t))
}
