// SPDX-License-Identifier: Apache-2.0

// Command nvpair-proxy serves the engines' usual ports and routes what comes in.
package main

import (
	"os"

	"nvpair/internal/worker"
	"nvpair/services/proxy"
)

// Version is stamped by the build.
var Version = "dev"

func main() { os.Exit(proxy.Main(os.Args[1:], Version, worker.Stdio())) }
