// SPDX-License-Identifier: Apache-2.0

// Package host is the command line of a node (nvpair). nvpair serve is a
// headless parent of the process tree: it keeps the broker running and shares it
// among any number of local clients through a control socket, the hub. The other
// commands are such clients.
//
// Where things are: serve.go is the node's life, hub.go the broker's side of the
// hub, hubclient.go a client's side, judge.go what makes a node degraded, main.go
// and help.go the command line, rpc.go how the commands reach a node, print.go how
// they print, and call.go, errors.go, jobs.go, node.go, nodes.go (with
// noderows.go), status.go and stop.go the commands.
package host
