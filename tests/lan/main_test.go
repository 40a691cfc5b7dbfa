// SPDX-License-Identifier: Apache-2.0

package lan

import (
	"testing"

	"nvpair/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
