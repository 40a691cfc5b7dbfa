// SPDX-License-Identifier: Apache-2.0

// Package scanner is the worker that keeps the directory of nodes. This is its
// first form: it takes the registrations of this node's services and keeps this
// node's own entry. It does not touch the network yet: nothing is announced,
// browsed, asked or probed, so the directory holds no other node.
//
// Messages are handled one at a time; the answer to a request is queued before
// the events it causes. Events leave in the order of the changes: the entry is
// discovered once, right after the worker has announced itself, and updated with
// every real change from then on.
package scanner

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"nvpair/internal/appdir"
	"nvpair/internal/worker"
)

// sweepEvery is how often the addresses are looked at (DI-28).
const sweepEvery = 15 * time.Second

// Config is what the worker needs from outside.
type Config struct {
	worker.Config
	// ClusterDir is the cluster's directory. Its parent holds the node's
	// identity; empty is the data directory.
	ClusterDir string
	// Hostname is what the node is called; empty asks the system.
	Hostname string
	// Addresses returns the addresses to publish, best first; nil asks the
	// system. It may be called from several goroutines.
	Addresses func() ([]string, error)
}

// Main runs the worker from its command line and returns its exit status.
func Main(args []string, version string, std worker.Streams) int {
	var cfg Config
	return worker.Main(worker.Program{
		Name:    "nvpair-node-scanner",
		Version: version,
		Flags: func(fs *flag.FlagSet) {
			fs.StringVar(&cfg.ClusterDir, "cluster-dir", "",
				"the cluster's directory; its parent holds the node's identity (default the data directory)")
		},
		Run: func(ctx context.Context, common worker.Config) error {
			cfg.Config = common
			return Run(ctx, cfg)
		},
	}, args, std)
}

// Run serves the link until ctx ends or the link closes. It fails before the
// first frame if the node's identity cannot be had (DEC-122).
func Run(ctx context.Context, cfg Config) error {
	s, err := newService(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var sweeps sync.WaitGroup
	defer sweeps.Wait()
	defer cancel()
	sweeps.Go(func() { s.sweep(ctx) })
	s.link.Serve(ctx, s.handle)
	return nil
}

// service is the worker. Its fields do not change once it serves.
type service struct {
	log       *slog.Logger
	link      *worker.Link
	base      string // directory of the identity
	addresses func() ([]string, error)
	self      *selfEntry
}

func newService(cfg Config) (*service, error) {
	base, err := baseDir(cfg.ClusterDir)
	if err != nil {
		return nil, err
	}
	id, err := appdir.NodeID(base)
	if err != nil {
		return nil, err
	}
	s := &service{log: cfg.Log, base: base, addresses: cfg.Addresses, link: worker.NewLink(cfg.Config)}
	if s.addresses == nil {
		s.addresses = localAddresses
	}
	s.self = newSelfEntry(id, name(cfg.Hostname), s.emit)
	s.refreshAddresses()
	s.self.announce() // queued right behind ready and hello (DI-112)
	return s, nil
}

// baseDir is the directory in which the node's identity lies (DI-100).
func baseDir(clusterDir string) (string, error) {
	if clusterDir != "" {
		return filepath.Dir(filepath.Clean(clusterDir)), nil
	}
	dir, err := appdir.DataDir()
	if err != nil {
		return "", fmt.Errorf("no place for the node's identity: %w, or name the cluster's directory with --cluster-dir", err)
	}
	return dir, nil
}

// name is a label and no identity (DI-10).
func name(configured string) string {
	host := configured
	if host == "" {
		host, _ = os.Hostname() // a node without a name is a node all the same
	}
	if host = strings.Trim(host, "."); host == "" {
		return "unknown"
	}
	return host
}

// emit queues an event. It is called under the lock of the entry, and never waits.
func (s *service) emit(method string, params any) {
	if err := s.link.Notify(method, params); err != nil {
		s.log.Warn("event lost", "method", method, "err", err)
	}
}

// sweep looks at the addresses until ctx ends.
func (s *service) sweep(ctx context.Context) {
	ticks := time.NewTicker(sweepEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			s.refreshAddresses()
		case <-ctx.Done():
			return
		}
	}
}

// refreshAddresses keeps the last good list when the system does not tell.
func (s *service) refreshAddresses() {
	ips, err := s.addresses()
	if err != nil {
		s.log.Debug("addresses unknown", "err", err)
		return
	}
	if s.self.setAddresses(ips) {
		s.log.Info("addresses changed", "addrs", strings.Join(ips, ","))
	}
}
