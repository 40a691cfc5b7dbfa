// SPDX-License-Identifier: Apache-2.0

// Command nvpair-bundle is every binary of the product in one executable. The
// name it is started under, or else its first argument, says which one it is:
// separate processes share one image in memory and one link step.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"nvpair/internal/worker"
	"nvpair/services/broker"
	"nvpair/services/errors"
	"nvpair/services/host"
	"nvpair/services/manualnodes"
	"nvpair/services/nodeinfo"
	"nvpair/services/nodesettings"
	"nvpair/services/proxy"
	"nvpair/services/scanner"
	"nvpair/services/scheduler"
)

// Versions is stamped by the build: name=version pairs, comma-separated.
var Versions string

func main() {
	name, args := nameOf(os.Args[0]), os.Args[1:]
	programs := programs()
	if programs[name] == nil && len(args) > 0 {
		name, args = nameOf(args[0]), args[1:]
	}
	run := programs[name]
	if run == nil {
		fmt.Fprintf(os.Stderr, "start this under the name of a program, or with it as first argument:\n  %s\n",
			strings.Join(slices.Sorted(maps.Keys(programs)), "\n  "))
		os.Exit(2)
	}
	os.Exit(run(args, version(name), worker.Stdio()))
}

func programs() map[string]func([]string, string, worker.Streams) int {
	return map[string]func([]string, string, worker.Streams) int{
		"nvpair":               host.Main,
		"nvpair-ui-broker":     broker.Main,
		"nvpair-node-scanner":  scanner.Main,
		"nvpair-errors":        errors.Main,
		"nvpair-node-settings": nodesettings.Main,
		"nvpair-node-info":     nodeinfo.Main,
		"nvpair-proxy":         proxy.Main,
		"nvpair-job-scheduler": scheduler.Main,
		"nvpair-manual-nodes":  manualnodes.Main,
	}
}

func nameOf(path string) string { return strings.TrimSuffix(filepath.Base(path), ".exe") }

// version returns the stamped version of a program, "dev" without a stamp.
func version(name string) string {
	for pair := range strings.SplitSeq(Versions, ",") {
		if n, v, ok := strings.Cut(pair, "="); ok && n == name {
			return v
		}
	}
	return "dev"
}
