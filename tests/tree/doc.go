// SPDX-License-Identifier: Apache-2.0

// Package tree tests the process tree of one machine: the real binaries, each
// tree on a host of its own.
package tree
