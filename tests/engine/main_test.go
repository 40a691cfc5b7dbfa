// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

func repeat(s string, n int) string { return strings.Repeat(s, n) }

func loading(_ *testing.T, e *Engine) { e.SetLoading(true) }
