// SPDX-License-Identifier: Apache-2.0

// Package jobs is the broker's memory of all jobs in the cluster: which event
// about a job counts, what may be guessed about a job whose node fell silent,
// what a restarted worker is told, and the history of finished jobs on disk.
//
// # Index
//
// An [Index] is state and nothing else: one mutex, no goroutine, no I/O. A record
// is replaced as a whole and keeps the object that its producer wrote, with
// members that nobody here knows. Merging follows broker section 9 (merge.go).
//
// It gives no order between a change and its announcement: who applies an event
// and tells others holds a lock of its own over both.
//
// # Bounds
//
// A record holds at most 64 KiB; a larger one is reduced to the members that are
// known, long texts cut, and refused if that does not help. Open records are at
// most 10,000 and 32 MiB, those of other nodes at most four fifths of that, so
// that a peer cannot shut out this node's own jobs. What would exceed it is
// refused while it is open; its end is taken. Finished records are at most the
// newest 10,000 and 32 MiB of the last 7 days; in between, until the next flush,
// a quarter more.
//
// # Time
//
// Silence and the age of what is replayed are measured on the monotonic clock, so
// that a step of the wall clock fails no job. Wall time is only written (when a
// guess ends a job) and compared with the times that records carry.
package jobs
