// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package harness

import "testing"

// actAsHelper does nothing: there are no hosts here.
func actAsHelper([]string) {}

// Require skips the test, or fails it in CI: hosts are made of Linux namespaces.
func Require(t testing.TB) {
	t.Helper()
	Lacking(t, "Linux network namespaces")
}
