// SPDX-License-Identifier: Apache-2.0

// Command nvpair-node-info tells this machine's hardware and load over HTTP.
package main

import (
	"os"

	"nvpair/internal/worker"
	"nvpair/services/nodeinfo"
)

// Version is stamped by the linker.
var Version = "dev"

func main() { os.Exit(nodeinfo.Main(os.Args[1:], Version, worker.Stdio())) }
