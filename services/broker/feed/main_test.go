// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// await lets time pass in a bubble.
func await(d time.Duration) { <-time.After(d) }
