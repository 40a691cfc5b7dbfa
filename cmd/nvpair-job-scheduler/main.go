// SPDX-License-Identifier: Apache-2.0

// Command nvpair-job-scheduler ranks the nodes, least loaded first.
package main

import (
	"os"

	"nvpair/internal/worker"
	"nvpair/services/scheduler"
)

// Version is stamped by the linker.
var Version = "dev"

func main() { os.Exit(scheduler.Main(os.Args[1:], Version, worker.Stdio())) }
