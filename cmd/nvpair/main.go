// SPDX-License-Identifier: Apache-2.0

// Command nvpair runs a node on this machine and speaks to it.
package main

import (
	"os"

	"nvpair/internal/worker"
	"nvpair/services/host"
)

// Version is stamped by the build.
var Version = "dev"

func main() { os.Exit(host.Main(os.Args[1:], Version, worker.Stdio())) }
