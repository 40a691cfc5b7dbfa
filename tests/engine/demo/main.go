// SPDX-License-Identifier: Apache-2.0

// Command demo, installed as nvpair-demo-engine, is a stand-in for a real engine:
// it has no model. It is a program for tests, demos and benchmarks and no part of
// the product.
package main

import (
	"os"

	"nvpair/tests/engine"
)

func main() { os.Exit(engine.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
