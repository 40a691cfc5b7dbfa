// SPDX-License-Identifier: Apache-2.0

//go:build !race

package harness

// raceEnabled reports whether this test has the race detector; the binaries get it then too.
const raceEnabled = false
