// SPDX-License-Identifier: Apache-2.0

// Package feed is what stands between the broker and the scheduler: the load of
// other nodes on its way in, the ranking of nodes on its way out, and the queue
// behind the queue of a link that is full.
//
// [Telemetry] and [Ranking] are state without goroutine or I/O. [Outbox] keeps
// the order of events on one link and never makes its caller wait: what the link
// does not take waits in it, of each job only the newest state.
package feed
