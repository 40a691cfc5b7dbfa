// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"nvpair/internal/appdir"
	"nvpair/internal/filelock"
	"nvpair/internal/ipc"
	"nvpair/internal/worker"
	"nvpair/shared/engine"
)

// name is the broker's binary, as in its log lines.
const name = "nvpair-ui-broker"

// lockWait is how long a broker waits for its predecessor to be gone (PO-30).
const lockWait = 5 * time.Second

// orphanGrace is longer than the whole teardown: a broker whose parent died must
// still end its workers.
const orphanGrace = teardownBudget + 10*time.Second

type options struct {
	endpoint   string
	level      string
	engines    string
	clusterDir string
	paths      map[string]string // explicit, by binary
}

// Main runs the broker from its command line and returns the exit status.
func Main(args []string, version string, std worker.Streams) int {
	opts := options{paths: make(map[string]string)}
	code, ok := worker.ParseFlags(name, version, args, std, opts.define)
	if !ok {
		return code
	}
	migrated, migrateErr := appdir.Migrate()
	dataDir, err := appdir.DataDir()
	if err != nil {
		fmt.Fprintf(std.Err, "%s: %v\n", name, err)
		return 1
	}
	sink := NewSink(std.Err, dataDir)
	log, level := worker.NewLog(name, opts.level, sink)
	logMigration(log, migrated, migrateErr)
	ctx, stop := worker.Context(log, orphanGrace)
	// In this order: a fatal line gets out before the exit (BR-79), and a reader
	// of stderr that is gone must not end the process by SIGPIPE meanwhile.
	defer func() { _ = sink.Close(); stop() }()
	cfg := Config{Stderr: sink, Log: log, Level: level, Version: version, DataDir: dataDir, OllamaHost: appdir.OllamaHost()}
	if err := run(ctx, opts, cfg, std); err != nil {
		log.Error("broker ended", "err", err)
		return 1
	}
	return 0
}

func (o *options) define(fs *flag.FlagSet) {
	fs.StringVar(&o.endpoint, "ipc", "", "Unix socket or named pipe to dial instead of the standard streams")
	fs.StringVar(&o.level, "log-level", "", "debug, info, warn or error (default $NVPAIR_LOG_LEVEL, else info)")
	fs.StringVar(&o.engines, "proxy-engines", engine.IDs(), "comma-separated engines that get a facade")
	fs.StringVar(&o.clusterDir, "cluster-dir", "", "cluster directory (default <data dir>/cluster)")
	for _, d := range catalog() {
		fs.Func(d.pathFlag, fmt.Sprintf("path of %s (default: the file of that name in the current directory)", d.binary),
			func(path string) error { o.paths[d.binary] = path; return nil })
	}
}

func logMigration(log *slog.Logger, r appdir.Report, err error) {
	if err != nil {
		log.Warn("data directory of an earlier version not moved", "err", err)
	}
	if len(r.Moved) > 0 || len(r.Kept) > 0 {
		log.Info("data directory of an earlier version moved", "moved", len(r.Moved), "kept", len(r.Kept))
	}
}

// run prepares what must hold before anything is started, and then serves.
func run(ctx context.Context, opts options, cfg Config, std worker.Streams) error {
	if err := appdir.CheckSchema(cfg.DataDir); err != nil {
		return err
	}
	lock, err := lockDataDir(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release() }()
	if err := appdir.WriteSchema(cfg.DataDir); err != nil {
		return err
	}
	if cfg.Engines, err = engine.ParseList(opts.engines); err != nil {
		return fmt.Errorf("--proxy-engines: %w", err)
	}
	if cfg.Paths, err = resolvePaths(opts.paths, cfg.Log); err != nil {
		return err
	}
	if err := resolveIdentity(&cfg, opts.clusterDir); err != nil {
		return err
	}
	if cfg.Client, err = openClient(ctx, opts.endpoint, std); err != nil {
		return err
	}
	return Run(ctx, cfg)
}

func lockDataDir(ctx context.Context, cfg Config) (*filelock.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	lock, err := filelock.Acquire(ctx, filepath.Join(cfg.DataDir, "run", "broker.lock"),
		filelock.Info{PID: os.Getpid(), StartTime: time.Now().Format(time.RFC3339), Kind: name, Version: cfg.Version})
	var held *filelock.HeldError
	if errors.As(err, &held) {
		return nil, fmt.Errorf("another broker is running for this data directory: %w", err)
	}
	return lock, err
}

// resolveIdentity sets the cluster directory and the node id that lies beside it
// (BR-4, BR-5).
func resolveIdentity(cfg *Config, clusterDir string) error {
	if clusterDir == "" {
		clusterDir = filepath.Join(cfg.DataDir, "cluster")
	}
	clusterDir, err := filepath.Abs(clusterDir)
	if err != nil {
		return fmt.Errorf("--cluster-dir: %w", err)
	}
	cfg.ClusterDir = clusterDir
	cfg.Log.Info("resolved cluster directory", "path", clusterDir)
	cfg.NodeID, err = appdir.NodeID(filepath.Dir(clusterDir))
	return err
}

func openClient(ctx context.Context, endpoint string, std worker.Streams) (io.ReadWriteCloser, error) {
	if endpoint == "" {
		return ipc.Stdio(std.In, std.Out), nil
	}
	conn, err := ipc.DialAny(ctx, endpoint)
	if err != nil {
		return nil, fmt.Errorf("dial --ipc %s: %w", endpoint, err)
	}
	return conn, nil
}
