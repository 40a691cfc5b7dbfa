// SPDX-License-Identifier: Apache-2.0

// Command nvpair-ui-broker is the parent of a node's process tree.
package main

import (
	"os"

	"nvpair/internal/worker"
	"nvpair/services/broker"
)

// Version is stamped by the build.
var Version = "dev"

func main() { os.Exit(broker.Main(os.Args[1:], Version, worker.Stdio())) }
