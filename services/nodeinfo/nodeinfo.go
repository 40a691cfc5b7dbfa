// SPDX-License-Identifier: Apache-2.0

// Package nodeinfo is the worker that tells this machine's hardware and load to
// whoever asks on the network, with one HTTP route.
//
// A request costs one look at the newest sample and its encoding: nothing is
// measured for it, and it waits for no sample. Where only members of the cluster are
// served, it costs a look at the cluster's directory too (gated.go). One goroutine, the collector, reads the
// hardware and publishes what it read whole; a driver that hangs makes its
// figures old, which the answer says, and stops nothing else. Connections are
// bounded, and those that only wait give way to those that ask.
package nodeinfo

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"runtime"
	"time"

	"nvpair/internal/appdir"
	"nvpair/internal/clustertrust"
	"nvpair/internal/worker"
	"nvpair/services/nodeinfo/hardware"
	"nvpair/shared/discovery"
)

const name = "nvpair-node-info"

// stopWithin bounds what is left to do once the worker is to stop (NI-20).
const stopWithin = 3 * time.Second

// Config is what the worker needs from outside.
type Config struct {
	worker.Config
	// NodeID is reported as the node's uuid; empty is that of the data
	// directory, or of ClusterDir's parent.
	NodeID string
	// ClusterDir is where the node's cluster lies. While the node is a member, only
	// members are served; empty is to serve everybody.
	ClusterDir string
	Listeners  Listeners
	// Machine is what is read; nil is this machine.
	Machine Machine
}

// Machine is a machine as package hardware reads it. One goroutine at a time
// calls it.
type Machine interface {
	Host() hardware.Host
	Adapters(context.Context) []hardware.Adapter
	Load(context.Context) hardware.Load
}

// Main runs the worker from its command line and returns its exit status.
func Main(args []string, version string, std worker.Streams) int {
	runtime.GOMAXPROCS(2) // with one, a slow system call hands the rest to another thread; with many, threads wake and find nothing to do
	var cfg Config
	return worker.Main(worker.Program{
		Name:    name,
		Version: version,
		Flags:   cfg.define,
		Run: func(ctx context.Context, common worker.Config) error {
			cfg.Config = common
			return Run(ctx, cfg)
		},
	}, args, std)
}

func (c *Config) define(fs *flag.FlagSet) {
	l := &c.Listeners
	fs.IntVar(&l.Port, "port", discovery.PortNodeInfo, "port for HTTP, on all interfaces")
	fs.IntVar(&l.TLSPort, "tls-port", defaultTLSPort, "port for HTTPS, with --cert and --key")
	fs.StringVar(&l.Cert, "cert", "", "PEM file of the server's certificate; moves the route to HTTPS")
	fs.StringVar(&l.Key, "key", "", "PEM file of its key")
	fs.StringVar(&l.ClientCA, "client-ca", "", "PEM file of the authorities of client certificates, which are then required")
	fs.BoolVar(&l.AcceptHTTP, "accept-http", false, "keep HTTP beside HTTPS")
	fs.StringVar(&c.ClusterDir, "cluster-dir", "",
		"the cluster's directory: while the node is a member, only members are served; its parent holds the node's identity")
	fs.StringVar(&c.NodeID, "node-id", "", "uuid to report (default that of the data directory)")
}

// Run serves link and network until ctx ends or the link closes. It fails before
// the first frame if flags, certificates or ports do not allow it (NI-4).
func Run(ctx context.Context, cfg Config) error {
	id, err := cfg.identity()
	if err != nil {
		return err
	}
	machine := cfg.Machine
	if machine == nil {
		m := hardware.New(hardware.Config{Log: cfg.Log})
		defer m.Close()
		machine = m
	}
	c := newCollector(machine)
	c.prepare(ctx) // before the ports are bound (NI-5)
	var trust *clustertrust.View
	if cfg.ClusterDir != "" {
		trust = clustertrust.Open(cfg.ClusterDir, cfg.Log)
	}
	s := newService(cfg, id, c, trust)
	listeners, err := cfg.open(ctx, trust)
	if err != nil {
		return err
	}
	c.describe(cfg.Log)
	return s.run(ctx, listeners)
}

// identity is the uuid to report (DI-100).
func (c *Config) identity() (string, error) {
	if c.NodeID != "" {
		return c.NodeID, nil
	}
	base := filepath.Dir(filepath.Clean(c.ClusterDir))
	if c.ClusterDir == "" {
		var err error
		if base, err = appdir.DataDir(); err != nil {
			return "", fmt.Errorf("no place for the node's identity: %w, or give it with --node-id", err)
		}
	}
	return appdir.NodeID(base)
}

// open binds the ports. A node that is told of its cluster serves its members alone,
// whatever else it was told of certificates (NI-25).
func (c *Config) open(ctx context.Context, trust *clustertrust.View) ([]listener, error) {
	if trust == nil {
		return c.Listeners.open(ctx)
	}
	if l := c.Listeners; l.Cert != "" || l.Key != "" || l.ClientCA != "" {
		c.Log.Warn("--cert, --key and --client-ca are ignored: --cluster-dir is given")
	}
	return openGated(ctx, c.Listeners.Port, trust)
}

// service is the worker.
type service struct {
	log       *slog.Logger
	link      *worker.Link
	collector *collector
	route     *route
	handler   http.Handler // route, and what keeps it
	observer  *observer
}

func newService(cfg Config, id string, c *collector, trust *clustertrust.View) *service {
	cfg.NoReady = true // NI-18
	s := &service{
		log:       cfg.Log,
		link:      worker.NewLink(cfg.Config),
		collector: c,
		route:     newRoute(id, c),
		observer:  newObserver(),
	}
	s.handler = s.route
	if trust != nil {
		s.route.trust = trust
		s.handler = members(trust, s.route)
	}
	return s
}

// run serves until ctx or the link ends, or a listener fails.
func (s *service) run(ctx context.Context, listeners []listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 2*len(listeners)) // at most: a port and what pumps it
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.background(ctx, listeners, func(err error) { failed <- err; cancel() })
	}()
	s.link.Serve(ctx, s.handle)
	cancel()
	s.await(ended)
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// await waits for the rest, but not for a driver that hangs: the process could
// not end.
func (s *service) await(ended <-chan struct{}) {
	timer := time.NewTimer(stopWithin + time.Second)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		s.log.Warn("hardware does not answer, ending without it")
	}
}

// describe logs what was found at the start.
func (c *collector) describe(log *slog.Logger) {
	v := c.newest()
	var gpus []string
	for _, g := range v.gpus {
		gpus = append(gpus, g.Name)
	}
	attrs := []any{"gpus", len(gpus), "names", fmt.Sprintf("%q", gpus)}
	if v.cpu != nil {
		attrs = append(attrs, "cpu", cmp.Or(v.cpu.Name, "unknown"), "cores", v.cpu.Cores)
	}
	if v.memory != nil {
		attrs = append(attrs, "memoryBytes", v.memory.Total)
	}
	log.Info("hardware found", attrs...)
}
