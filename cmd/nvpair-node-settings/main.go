// SPDX-License-Identifier: Apache-2.0

// Command nvpair-node-settings keeps the typed settings of this node.
package main

import (
	"os"

	"nvpair/internal/worker"
	"nvpair/services/nodesettings"
)

// Version is stamped by the linker.
var Version = "dev"

func main() { os.Exit(nodesettings.Main(os.Args[1:], Version, worker.Stdio())) }
