// SPDX-License-Identifier: Apache-2.0

// Package jsonrpc is one end of a JSON-RPC 2.0 link: objects, one a line, over
// any byte stream. It is made for relays, so it never touches what it carries:
// ids, params, results and error objects stay the bytes that arrived.
//
// # What a [Conn] guarantees
//
// Reading. Frames reach the handler in arrival order, on one goroutine. A frame
// that is malformed or longer than the limit is skipped, reported at most once
// a second, and never disturbs the next one. No more than the limit and one
// read block is held for a frame.
//
// Writing. Callers never wait for the peer: frames go to an out-queue, and one
// goroutine writes them, whole and in queue order, as many as there are with
// one system call. The queue is bounded in bytes. When it is full, notifications
// and calls are refused with [ErrQueueFull]; responses are always taken, and
// while they alone exceed the bound the read loop stops taking frames, so a peer
// that asks without reading waits for itself. Two ends that do so to each other
// wait until a WriteTimeout ends the link.
//
// Snapshots. A [Stream] stands for a notification of which only the newest
// matters. However often it is marked, at most one is pending; its content is
// taken when it is written, after every frame queued before the mark. Frames that
// are queued while it is taken may stand ahead of it, so events that build on a
// snapshot's content do not mix with it in one order.
//
// Calls. A call ends exactly once: by its response, its deadline, its context or
// the end of the link, whichever is first; it leaves nothing behind, and a
// late response is dropped.
package jsonrpc
