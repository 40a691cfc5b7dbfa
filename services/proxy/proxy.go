// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"

	"nvpair/internal/upstream"
	"nvpair/internal/worker"
	"nvpair/services/proxy/route"
	"nvpair/shared/engine"
)

// Config is everything the proxy needs from outside.
type Config struct {
	worker.Config

	DataDir      string   // where chosen ports are kept
	AllowedHosts []string // names besides the loopback ones that Host may have (DEC-13)

	limits limits // shortened by tests
}

// proxy is the running worker.
type proxy struct {
	cfg      Config
	link     *worker.Link
	runID    string // of this process, in every job
	ledger   *route.Ledger
	pool     *upstream.Pool
	bodies   bodies
	buffers  copyBuffers
	reporter *reporter
	activity activity
	allowed  map[string]bool // AllowedHosts
	ctx      context.Context // ends when the worker is to stop
	serving  sync.WaitGroup  // everything the facades started
	ranking  atomic.Pointer[route.Ranking]

	mu      sync.Mutex               // guards facades
	facades map[string]*facadeServer // by engine id
}

// Main runs the proxy from its command line and returns the exit status.
func Main(args []string, version string, std worker.Streams) int {
	var cfg Config
	return worker.Main(worker.Program{
		Name: "nvpair-proxy", Version: version,
		Flags: func(fs *flag.FlagSet) {
			fs.String("cluster-dir", "", "cluster directory; accepted, not read until nodes can pair")
		},
		Run: func(ctx context.Context, base worker.Config) error {
			cfg.Config = base
			var err error
			if cfg.DataDir, err = dataDir(); err != nil {
				return err
			}
			cfg.AllowedHosts = allowedHosts()
			return Run(ctx, cfg)
		},
	}, args, std)
}

// Run serves the link and the facades it asks for until ctx or the link ends.
func Run(ctx context.Context, cfg Config) error {
	runID, err := newRunID()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &proxy{
		runID: runID, ctx: ctx,
		ledger:  route.NewLedger(),
		pool:    upstream.NewPool(upstream.Config{}),
		allowed: make(map[string]bool),
		facades: make(map[string]*facadeServer),
	}
	cfg.MaxFrameBytes = worker.SnapshotFrame
	cfg.limits = cfg.limits.orDefaults()
	cfg.Draining = func() { // the end of every running job is told while the link is open
		cancel()
		p.closeFacades()
		p.serving.Wait()
	}
	p.cfg, p.link = cfg, worker.NewLink(cfg.Config)
	p.bodies.most, p.bodies.replay = p.cfg.limits.held, p.cfg.limits.replay
	p.ranking.Store(&route.Ranking{})
	p.reporter = newReporter(p.link, cfg.Log)
	p.activity.init(p.link)
	for _, h := range cfg.AllowedHosts {
		p.allowed[h] = true
	}
	p.link.Serve(ctx, p.handle)
	p.reporter.close()
	p.pool.Close()
	return nil
}

func newRunID() (string, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("make a run id: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}

func (p *proxy) currentRanking() route.Ranking { return *p.ranking.Load() }

func (p *proxy) facade(id string) *facadeServer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.facades[id]
}

func (p *proxy) allFacades() []*facadeServer {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []*facadeServer
	for _, e := range engine.All() {
		if f := p.facades[e.ID]; f != nil {
			list = append(list, f)
		}
	}
	return list
}

// isFacadePort reports whether one of our own facades listens there.
func (p *proxy) isFacadePort(port int) bool {
	for _, f := range p.allFacades() {
		if f.port() == port {
			return true
		}
	}
	return false
}

func (p *proxy) closeFacades() {
	var wg sync.WaitGroup
	for _, f := range p.allFacades() {
		wg.Go(f.close)
	}
	wg.Wait()
}
