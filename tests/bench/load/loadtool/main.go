// SPDX-License-Identifier: Apache-2.0

// Command loadtool is one of the two ends between which inference is measured: `loadtool engine` is a stand-in for an
// engine and has no model, `loadtool client` makes the load. It is no part of the product.
package main

import (
	"os"

	"nvpair/tests/bench/load"
)

func main() { os.Exit(load.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
