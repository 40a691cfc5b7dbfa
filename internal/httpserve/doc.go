// SPDX-License-Identifier: Apache-2.0

// Package httpserve is the server side of an HTTP/1.1 proxy's hot path, with the
// handlers of net/http.
//
// A request is read, handled and answered by the goroutine of its connection, in
// one read and one write if it is short. Only a request that has been running for
// 20 ms gets a second goroutine, which notices that the client leaves; net/http
// starts one for every request, and with it wakes a second thread. Parsing is
// net/http's own, and a fuzz test compares every answer with its server's.
//
// What a [Server] guarantees. A head is bounded in size and time. No header of a
// handler ends its line, and no body exceeds its Content-Length. The context of a
// request ends when the handler returns, when BaseContext ends, when a write
// fails, and within 100 ms of the client's leaving, by whatever means: closing
// half of the connection is leaving. As in net/http that is not seen before the
// handler has read the body to its end, unless it is reading, nor behind a
// pipelined request. What the handler left of a body is read up to 256 KiB before
// the answer, unless it asks for full duplex or the connection ends anyway; one
// that is longer ends the connection. An idle connection holds no buffer after two
// seconds.
//
// What differs from net/http's server. A response of up to 4 KiB, not 2, is sent
// with a Content-Length of the server's; Content-Type is guessed likewise if the
// handler did not set it, to nil if there shall be none. A handler that panics has
// nothing sent that it has not flushed. A Content-Length that is malformed is not
// sent. After full duplex the connection is kept if the rest of the body could be
// read, and closed if that was malformed, where net/http does the contrary. Whoever
// is still sending when the connection ends is given half a second to read why. The
// context has no http.ServerContextKey. The map that Header returns belongs to the
// next response once the handler has returned. http.MaxBytesReader cannot end the
// connection. There is no TLS, no HTTP/2, no sendfile, no http.CloseNotifier, and no
// time limit for a whole request or response but what the handler sets with an
// http.ResponseController.
package httpserve
