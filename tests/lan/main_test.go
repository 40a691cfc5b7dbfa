// SPDX-License-Identifier: Apache-2.0

package lan

import (
	"flag"
	"testing"

	"nvpair/tests/harness"
)

// testsAtOnce is how many tests run together, unless -parallel says otherwise. They spend their time on waiting for others to
// be forgotten, so that it has nothing to do with the number of processors.
const testsAtOnce = "8"

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", testsAtOnce); err != nil {
		panic(err)
	}
	harness.Main(m)
}
