// SPDX-License-Identifier: Apache-2.0

// Package bench measures the process tree of one machine: start-up, calls, what the idle tree costs, and stop; then
// inference through it, beside nginx and a direct connection to the same engine; then what trees on one LAN cost each
// other. It runs the executable as `make build` ships it, without the race detector, on hosts of its own.
//
// `make bench` prints one table for each of the three. A figure that misses its bar is printed as missed and fails
// nothing, because a busy machine can do that; the run fails when a figure could not be taken. Without the flag
// -bench.figures everything but the arithmetic is skipped: the figures take minutes and mean nothing beside other tests.
package bench
