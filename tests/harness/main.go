// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"
)

// Main runs the tests of a package and exits; it is all that TestMain does. The same executable serves as the helper
// processes of Host, so nothing may come before it. After the tests it removes what Bin built, and it fails the run if
// a goroutine is left.
func Main(m *testing.M) {
	actAsHelper(os.Args)
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := removeBin(); err != nil {
			fmt.Fprintln(os.Stderr, "harness:", err)
			code = max(code, 1)
		}
		os.Exit(code)
	}))
}

// RequireProgram skips the test if this machine lacks one of these programs, or fails it if CI=true is set.
func RequireProgram(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			Lacking(t, name)
		}
	}
}

// Lacking ends a test whose needs this machine does not meet: skipped on a developer's machine, failed in CI, where a
// suite that does not run must not look like one that passed.
func Lacking(t testing.TB, need string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("needs %s, and CI must not skip it", need)
	}
	t.Skipf("needs %s", need)
}
