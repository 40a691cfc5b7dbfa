// SPDX-License-Identifier: Apache-2.0

// Command nvpair-manual-nodes keeps and probes the nodes that are given by address.
package main

import (
	"os"

	"nvpair/internal/worker"
	"nvpair/services/manualnodes"
)

// Version is stamped by the linker.
var Version = "dev"

func main() { os.Exit(manualnodes.Main(os.Args[1:], Version, worker.Stdio())) }
