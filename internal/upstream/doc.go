// SPDX-License-Identifier: Apache-2.0

// Package upstream is the client side of an HTTP/1.1 proxy's hot path.
//
// A request is written, and its response read, by the goroutine that asks: no
// goroutine per connection stands between the two sockets, which is what
// net/http's transport pays for features a proxy does not use. Response parsing
// is net/http's own.
//
// What a [Pool] guarantees. A request leaves with exactly one framing, built
// here. A response head is bounded. A kept-alive connection that the server
// closed meanwhile is noticed before it is used, or, if the close crosses the
// request, the request is sent once more on a fresh one, as long as not a byte of
// a response arrived. Ending the context ends whatever blocks, at once. A
// connection is reused only after its response was read to the end.
package upstream
