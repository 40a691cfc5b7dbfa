// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func repeat(s string, n int) string { return strings.Repeat(s, n) }

func loading(_ *testing.T, e *Engine) { e.SetLoading(true) }
