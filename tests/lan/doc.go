// SPDX-License-Identifier: Apache-2.0

// Package lan holds the tests that need more than one machine. Each host is a network namespace of its own, joined to
// others by bridges.
package lan
