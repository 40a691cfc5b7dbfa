// SPDX-License-Identifier: Apache-2.0

// Package broker is the parent of the process tree (nvpair-ui-broker): it starts
// the workers, keeps them running, relays their methods to one client and merges
// what they report. It serves nothing on the network and sees no inference traffic.
//
// Where things are: catalog.go has the table of workers, workerlink.go what
// arrives from one, client.go what the client may ask, relay.go how a request
// travels, nodes.go the merged directory, manual.go
// what users gave it, funnel.go the service errors,
// registrations.go what this node advertises, nodeinfo.go what the inventory is
// told, workloads.go the jobs (their state is in package jobs), scheduler.go what
// the scheduler is fed and answers (package feed), facades.go the proxy's
// listeners, engines.go and manifests.go the engines behind them, status.go what
// broker:status tells, sink.go the diagnostics.
//
// Every link has its own reader and its own bounded out-queue. No reader ever
// waits for another link, so neither a stuck worker nor a client that stopped
// reading holds up anybody else.
package broker
