// SPDX-License-Identifier: Apache-2.0

// Package worker is what the life of every worker has in common.
//
// [Main] turns a command line into a running worker: common flags, log, signals,
// the watch over the parent, exit status. [Link.Serve] runs the worker's link: one
// goroutine, the loop, takes the inbound messages strictly one at a time and
// hands them to the worker, so state that only the handler touches needs no
// lock. Control messages (ping, log level, shutdown) are answered by the same
// loop: a worker that is stuck does not answer pings.
//
// The link's read loop waits while the loop's inbox is full. That holds back
// the broker's requests, never its other workers: the broker queues per link.
package worker
