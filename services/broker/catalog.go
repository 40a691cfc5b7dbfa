// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"time"

	"nvpair/internal/jsonrpc"
	"nvpair/shared/discovery"
)

const (
	mib = 1 << 20
	// snapshotFrame is the frame limit of links that carry snapshots (DEC-116).
	snapshotFrame = 8 * mib
	// nodeInfoFrame is the frame limit of node-info's simple link (WR-21).
	nodeInfoFrame = 64 << 10
)

// definition is one row of the table of workers: all that makes one different
// from another. Everything else is the same for all ten.
type definition struct {
	name     string // supervisor name: in crash ids, status, log
	label    string // in "<label> started" (BR-8)
	binary   string
	pathFlag string
	required bool // the broker does not start without it
	// planned: its broker side is not written yet. It counts as not installed
	// even if its file is there: started without its relays it would only do harm.
	planned bool

	absent     string        // message when it cannot be asked (BR section 5)
	callPrefix string        // of "<prefix> call failed: <cause>" (BR-22)
	deadline   time.Duration // of relayed calls; 0 = none
	maxFrame   int           // inbound; 0 = 1 MiB

	args      func(*Broker) []string                            // besides --log-level; nil for none
	spawned   func(context.Context, *Broker, *workerLink)       // after each spawn, on its own goroutine; nil for nothing
	announced func(*Broker)                                     // once it said hello, on its reader; must not wait; nil for nothing
	received  func(*Broker, *workerLink, *jsonrpc.Request) bool // notifications of this worker; false = unknown
	ended     func(*Broker)                                     // drops derived state (BR-11); nil for nothing
	drained   func(*Broker, *workerLink)                        // once all that an incarnation said was handled; nil for nothing
}

// Supervisor names, as they stand in crash ids.
const (
	workerScanner   = "scanner"
	workerErrors    = "errors"
	workerSettings  = "settings"
	workerEngines   = "engine-manager"
	workerNodeInfo  = "node-info"
	workerProxy     = "nvpair-proxy"
	workerWorkloads = "workload-manager"
	workerManual    = "manual-nodes"
	workerCluster   = "cluster-manager"
	workerScheduler = "scheduler"
)

// catalog returns the workers in start order (BR section 2).
func catalog() []definition {
	return []definition{
		{
			name: workerScanner, label: "scanner", binary: "nvpair-node-scanner", pathFlag: "scanner-path",
			required: true, callPrefix: "scanner", maxFrame: snapshotFrame,
			args: clusterDirArgs, spawned: scannerSpawned, received: (*Broker).fromScanner,
		},
		{
			name: workerErrors, label: "nvpair-errors", binary: "nvpair-errors", pathFlag: "errors-path",
			maxFrame: snapshotFrame,
			args: func(b *Broker) []string {
				return append([]string{"--peer-sync", "--node-id", b.cfg.NodeID}, clusterDirArgs(b)...)
			},
			spawned:  errorsSpawned,
			received: (*Broker).fromErrors, ended: (*Broker).errorsEnded,
		},
		{
			name: workerSettings, label: "settings", binary: "nvpair-node-settings", pathFlag: "settings-path",
			absent: "node-settings not available", callPrefix: "settings", deadline: 5 * time.Second,
			maxFrame: 4 * mib, // a value taken in a frame of 1 MiB may be twice as long when it is encoded again
			received: (*Broker).fromSettings,
		},
		{
			planned: true, name: workerEngines, label: "engine-manager", binary: "nvpair-engine-manager", pathFlag: "engine-manager-path",
			absent: "engine-manager not available", callPrefix: "engine", maxFrame: snapshotFrame,
		},
		{
			name: workerNodeInfo, label: "node-info", binary: "nvpair-node-info", pathFlag: "node-info-path",
			maxFrame: nodeInfoFrame,
			// No cluster directory: its listener is to stay open to everybody (NI-3).
			args:    func(b *Broker) []string { return []string{"--node-id", b.cfg.NodeID} },
			spawned: nodeInfoSpawned, announced: nodeInfoAnnounced, received: (*Broker).fromNodeInfo, ended: (*Broker).nodeInfoEnded,
		},
		{
			name: workerProxy, label: "proxy", binary: "nvpair-proxy", pathFlag: "proxy-path",
			absent: "nvpair-proxy not available", callPrefix: "proxy", deadline: 5 * time.Second,
			args: clusterDirArgs, spawned: proxySpawned, received: (*Broker).fromProxy, ended: (*Broker).proxyEnded,
			drained: proxyDrained,
		},
		{
			planned: true, name: workerWorkloads, label: "workload-manager", binary: "nvpair-workload-manager", pathFlag: "workload-manager-path",
			maxFrame: snapshotFrame,
			args:     clusterDirArgs, spawned: workloadsSpawned, received: (*Broker).fromWorkloads, drained: workloadsDrained,
		},
		{
			name: workerManual, label: "manual-nodes", binary: "nvpair-manual-nodes", pathFlag: "manual-nodes-path",
			absent: "manual-nodes not available", callPrefix: "manual-nodes", maxFrame: snapshotFrame,
			args:     func(b *Broker) []string { return append([]string{"--node-id", b.cfg.NodeID}, clusterDirArgs(b)...) },
			received: (*Broker).manualTold, ended: (*Broker).manualEnded,
		},
		{
			planned: true, name: workerCluster, label: "cluster-manager", binary: "nvpair-cluster-manager", pathFlag: "cluster-manager-path",
			absent: "nvpair-cluster-manager not available", callPrefix: "cluster-manager", deadline: 30 * time.Second,
		},
		{
			name: workerScheduler, label: "scheduler", binary: "nvpair-job-scheduler", pathFlag: "scheduler-path",
			spawned: schedulerSpawned, received: (*Broker).fromScheduler, drained: schedulerDrained,
		},
	}
}

func clusterDirArgs(b *Broker) []string {
	if b.cfg.ClusterDir == "" {
		return nil
	}
	return []string{"--cluster-dir", b.cfg.ClusterDir}
}

// scannerSpawned gives a new scanner what this node advertises, and in time
// drops the nodes that only its predecessor knew.
func scannerSpawned(ctx context.Context, b *Broker, l *workerLink) {
	b.registrations.replay(l)
	b.manual.replayScanner(l)
	if l.process.Generation == 1 {
		return
	}
	select {
	case <-time.After(b.cfg.StaleAfter):
		b.nodes.dropOlder(l.process.Generation)
	case <-ctx.Done():
	}
}

// errorsSpawned gives a new store the conditions that still stand (DEC-115).
func errorsSpawned(_ context.Context, b *Broker, l *workerLink) {
	b.funnel.replay(l)
	b.registrations.set(discovery.Registration{Service: discovery.ServiceErrors, Port: discovery.PortErrors})
}
