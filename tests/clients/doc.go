// SPDX-License-Identifier: Apache-2.0

// Package clients tests the facades with the client libraries that people use: scripts of node, run on a host of their
// own, against the router and against the engine behind it. A library must not notice which of them it talks to.
package clients
