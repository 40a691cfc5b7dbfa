// SPDX-License-Identifier: Apache-2.0

// Package manualnodes is the worker that keeps the nodes a user gave by address,
// for networks in which nodes do not hear each other, and probes them.
//
// A node that was acknowledged is on disk. All nodes are probed every ten seconds,
// at most eight at once and never one twice at once; without nodes nothing runs.
// What a probe found is told once it is over, and only what changed; the outcome
// of one whose node was removed or moved meanwhile is dropped. Events leave in the
// order of the changes.
//
// A machine that runs this product is recognised by its node-info, which is asked
// first. Its engine ports, which belong to its facades, are then left alone.
package manualnodes

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"nvpair/internal/appdir"
	"nvpair/internal/worker"
)

// Config is what the worker needs from outside.
type Config struct {
	worker.Config
	DataDir    string // in which the list of nodes lies; empty asks appdir
	ClusterDir string // its parent holds this node's identity; empty is DataDir
	NodeID     string // this node's identity; empty reads it from its file

	// PEM files for probes over TLS (MN-23); empty is none. ClientCert and
	// ClientKey come together, the roots of CABundle beside the system's.
	ClientCert, ClientKey, CABundle string

	// Dial connects to nodes; nil asks the system.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Lookup returns the addresses of a name; nil asks the system.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
}

// probeEvery is how often a node is probed (MN-17).
const probeEvery = 10 * time.Second

// Main runs the worker from its command line and returns its exit status.
func Main(args []string, version string, std worker.Streams) int {
	var cfg Config
	return worker.Main(worker.Program{
		Name:    "nvpair-manual-nodes",
		Version: version,
		Flags:   cfg.define,
		Run: func(ctx context.Context, common worker.Config) error {
			cfg.Config = common
			return Run(ctx, cfg)
		},
	}, args, std)
}

func (c *Config) define(fs *flag.FlagSet) {
	fs.StringVar(&c.ClusterDir, "cluster-dir", "",
		"the cluster's directory; its parent holds this node's identity (default the data directory)")
	fs.StringVar(&c.NodeID, "node-id", "", "this node's identity (default from its file)")
	fs.StringVar(&c.ClientCert, "client-cert", "", "PEM certificate to present to nodes with a tls_port; needs --client-key")
	fs.StringVar(&c.ClientKey, "client-key", "", "PEM key of --client-cert")
	fs.StringVar(&c.CABundle, "ca-bundle", "", "PEM roots to trust besides the system's")
}

// Run serves the link until ctx ends or the link closes. It fails before the
// first frame if a file of the flags is unusable (MN-4) or there is no data
// directory.
func Run(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := newService(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.probes.Wait()
	var ticks sync.WaitGroup
	defer ticks.Wait()
	defer cancel()
	s.restore()
	ticks.Go(func() { s.tick(ctx) })
	s.link.Serve(ctx, s.handle)
	return nil
}

// service is the worker.
type service struct {
	ctx       context.Context // of the probes; ends with the worker
	log       *slog.Logger
	link      *worker.Link
	self      string // this node's identity, "" if unknown
	prober    *prober
	list      list           // what is on disk; belongs to the loop of the link, like fileError
	fileError bool           // it is reported that the list cannot be read
	probes    sync.WaitGroup // one for each node that is probed
	slots     chan struct{}  // capacity is how many are probed at once
	some      chan struct{}  // capacity 1: there is a first node

	// mu guards the rest. It is held over events, which only queue, so that they
	// leave in the order of the changes.
	mu    sync.Mutex
	nodes map[string]*node // by id
}

func newService(ctx context.Context, cfg Config) (*service, error) {
	dir := cfg.DataDir
	if dir == "" {
		var err error
		if dir, err = appdir.DataDir(); err != nil {
			return nil, fmt.Errorf("no place for the list of nodes: %w", err)
		}
	}
	prober, err := newProber(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &service{
		ctx: ctx, log: cfg.Log, link: worker.NewLink(cfg.Config), self: ownID(cfg, dir), prober: prober,
		list:  list{path: filepath.Join(dir, "manual-nodes", "nodes.json"), legacy: filepath.Join(dir, "configs", "manual-nodes.json")},
		slots: make(chan struct{}, maxProbes), some: make(chan struct{}, 1), nodes: make(map[string]*node),
	}, nil
}

// ownID is this node's identity. Without one, only a connection from this machine
// to itself shows that an address is its own.
func ownID(cfg Config, dataDir string) string {
	if cfg.NodeID != "" {
		return cfg.NodeID
	}
	base := dataDir
	if cfg.ClusterDir != "" {
		base = filepath.Dir(filepath.Clean(cfg.ClusterDir))
	}
	if _, err := os.Stat(filepath.Join(base, "cluster", "identity.json")); err != nil {
		if _, err := os.Stat(filepath.Join(base, "node-id.json")); err != nil {
			return "" // it is not this worker's to make
		}
	}
	id, err := appdir.NodeID(base)
	if err != nil {
		cfg.Log.Warn("this node's identity is unknown", "err", err)
	}
	return id
}

// tick probes all nodes at intervals while there are any, until ctx ends.
func (s *service) tick(ctx context.Context) {
	for {
		select {
		case <-s.some:
		case <-ctx.Done():
			return
		}
		s.probeWhileAny(ctx)
	}
}

// probeWhileAny leaves the first probe of a node to what made it one.
func (s *service) probeWhileAny(ctx context.Context) {
	ticks := time.NewTicker(probeEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			if !s.probeAll() {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}
