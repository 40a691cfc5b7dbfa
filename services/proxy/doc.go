// SPDX-License-Identifier: Apache-2.0

// Package proxy is the worker nvpair-proxy: it takes the ports that clients of
// the engines know and passes each request to a node that can serve it, streamed
// as it comes, failing over before the first byte of an answer and never after.
//
// A request's way: facadeServer.ServeHTTP (handler.go) checks who asks and sorts the
// request; inference.go reads its body, finds the owners of its model and tries
// them; attempt.go is one try, from dispatch to commit and along the stream.
// control.go, lists.go (with survey.go) and preflight.go are the ways of the other
// classes; vigil.go tells slow nodes from dead ones, targets.go how nodes are
// reached, affinity.go which node made what a request continues. The routing
// decision is package route, what the dialects look like is package dialect, the
// sockets towards engines are internal/upstream.
//
// One process serves all engines. A facade (facade.go) is one engine's listeners
// (listener.go, alias.go) with its own view of the nodes (overlay.go); reservations, connections and the
// scheduler's ranking are shared.
package proxy
