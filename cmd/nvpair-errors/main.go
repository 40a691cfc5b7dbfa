// SPDX-License-Identifier: Apache-2.0

// Command nvpair-errors keeps the service errors of this node.
package main

import (
	"os"

	"nvpair/internal/worker"
	"nvpair/services/errors"
)

// Version is stamped by the linker.
var Version = "dev"

func main() { os.Exit(errors.Main(os.Args[1:], Version, worker.Stdio())) }
