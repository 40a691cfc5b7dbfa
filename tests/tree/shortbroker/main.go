// SPDX-License-Identifier: Apache-2.0

// Command shortbroker is a broker for tests, with budgets that are over in the
// time a test takes. It takes the workers by path, as the real one does, and
// everything else of it is the real one's. After an orderly end it proves that
// nothing of the tree is left in the process: no goroutine and no descriptor.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/goleak"

	"nvpair/internal/appdir"
	"nvpair/internal/ipc"
	"nvpair/internal/supervise"
	"nvpair/internal/worker"
	"nvpair/services/broker"
)

// exitLeaked is the exit status of a broker that left something behind.
const exitLeaked = 3

// name is the process's, in log lines.
const name = "shortbroker"

type options struct {
	policy     supervise.Policy
	staleAfter time.Duration
	paths      map[string]string // by binary
}

func main() {
	opts := options{policy: shortPolicy(), paths: make(map[string]string)}
	code, ok := worker.ParseFlags(name, "test", os.Args[1:], worker.Stdio(), opts.define)
	if !ok {
		os.Exit(code)
	}
	before, err := descriptors()
	if err == nil {
		err = run(opts)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	if err := leaks(before); err != nil {
		fmt.Fprintf(os.Stderr, "%s: left behind: %v\n", name, err)
		os.Exit(exitLeaked)
	}
}

// shortPolicy keeps the real numbers of restarts and pings and shortens the times.
func shortPolicy() supervise.Policy {
	p := supervise.DefaultPolicy()
	p.FirstDelay, p.MaxDelay, p.HealthyAfter = 20*time.Millisecond, 100*time.Millisecond, time.Second
	p.PingEvery = 200 * time.Millisecond
	p.StopGrace, p.TermGrace, p.MinGrace = time.Second, 500*time.Millisecond, 50*time.Millisecond
	p.Drain = 500 * time.Millisecond
	return p
}

func (o *options) define(fs *flag.FlagSet) {
	for binary, flagName := range map[string]string{
		"nvpair-node-scanner": "scanner-path", "nvpair-errors": "errors-path", "nvpair-node-settings": "settings-path",
		"nvpair-node-info": "node-info-path",
	} {
		fs.Func(flagName, "path of "+binary+"; without it there is none", func(path string) error {
			o.paths[binary] = path
			return nil
		})
	}
	fs.DurationVar(&o.policy.HealthyAfter, "healthy-after", o.policy.HealthyAfter, "up that long ends a streak")
	fs.DurationVar(&o.policy.PingEvery, "ping-every", o.policy.PingEvery, "while a link is silent")
	fs.IntVar(&o.policy.PingMisses, "ping-misses", o.policy.PingMisses, "unanswered pings that mean hung")
	fs.DurationVar(&o.staleAfter, "stale-after", time.Second, "time that nodes of a crashed scanner have")
}

// run is what the real broker does between its command line and its exit.
func run(opts options) error {
	dataDir, err := appdir.DataDir()
	if err != nil {
		return err
	}
	nodeID, err := appdir.NodeID(dataDir)
	if err != nil {
		return err
	}
	sink := broker.NewSink(os.Stderr, dataDir)
	defer func() { _ = sink.Close() }()
	log, level := worker.NewLog(name, "info", sink)
	ctx, stop := worker.Context(log, 0)
	defer stop()
	return serve(ctx, opts, broker.Config{
		Stderr: sink, Log: log, Level: level, Version: "test",
		NodeID: nodeID, DataDir: dataDir, ClusterDir: filepath.Join(dataDir, "cluster"),
	})
}

func serve(ctx context.Context, opts options, cfg broker.Config) error {
	cfg.Client = ipc.Stdio(os.Stdin, os.Stdout)
	cfg.Paths, cfg.Policy, cfg.StaleAfter = opts.paths, opts.policy, opts.staleAfter
	err := broker.Run(ctx, cfg)
	if err != nil {
		cfg.Log.LogAttrs(ctx, slog.LevelError, "broker ended", slog.Any("err", err))
	}
	return err
}

// leaks reports what is left of a tree that has ended.
func leaks(before []string) error {
	if err := goleak.Find(); err != nil {
		return err
	}
	after, err := descriptors()
	if err != nil {
		return err
	}
	if len(after) != len(before) {
		return fmt.Errorf("descriptors: were %q, are %q", before, after)
	}
	return nil
}

// descriptors lists what this process has open, without what the runtime opens
// for itself when it first waits for a file.
func descriptors() ([]string, error) {
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir) // its own descriptor is closed by the time it is looked at
	if err != nil {
		return nil, err
	}
	var open []string
	for _, entry := range entries {
		target, err := os.Readlink(filepath.Join(dir, entry.Name()))
		if err == nil && !strings.HasPrefix(target, "anon_inode:[event") {
			open = append(open, entry.Name()+" -> "+target)
		}
	}
	slices.Sort(open)
	return open, nil
}
