// SPDX-License-Identifier: Apache-2.0

//go:build linux

package clients

import (
	"testing"

	"nvpair/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
