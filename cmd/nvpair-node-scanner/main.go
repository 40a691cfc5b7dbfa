// SPDX-License-Identifier: Apache-2.0

// Command nvpair-node-scanner keeps the directory of nodes.
package main

import (
	"os"

	"nvpair/internal/worker"
	"nvpair/services/scanner"
)

// Version is stamped by the linker.
var Version = "dev"

func main() { os.Exit(scanner.Main(os.Args[1:], Version, worker.Stdio())) }
