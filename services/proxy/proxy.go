// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"flag"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"nvpair/internal/appdir"
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

	// HeaderTimeout is what a node has for the head of its answer and then for
	// its first byte; 0 is as long as it takes (DEC-11).
	HeaderTimeout time.Duration

	limits limits // shortened by tests
}

// proxy is the running worker.
type proxy struct {
	cfg      Config
	link     *worker.Link
	runID    string // of this process, in every job
	ledger   *route.Ledger
	targets  targets
	here     machine
	bodies   bodies
	buffers  copyBuffers
	params   sync.Pool // of *[]byte: what is sent on the link for every request
	reporter *reporter
	activity activity
	affinity affinity
	allowed  map[string]bool // AllowedHosts
	ctx      context.Context // ends when the worker is to stop
	serving  worker.Group    // everything the facades started
	ranking  atomic.Pointer[route.Ranking]

	mu      sync.Mutex               // guards facades
	facades map[string]*facadeServer // by engine id
}

// softMemory is where the collector works harder: at the bound of request bodies
// and what else a busy proxy needs. Without it, the garbage of large bodies could
// double what the process takes.
const softMemory = 640 << 20

// Main runs the proxy from its command line and returns the exit status.
func Main(args []string, version string, std worker.Streams) int {
	var cfg Config
	var timeout string
	return worker.Main(worker.Program{
		Name: "nvpair-proxy", Version: version,
		Flags: func(fs *flag.FlagSet) {
			fs.String("cluster-dir", "", "cluster directory; accepted, not read until nodes can pair")
			fs.StringVar(&timeout, "response-header-timeout", "", "longest wait for the head of an answer, and again for its first byte, such as 90s "+
				"(default $NVPAIR_PROXY_RESPONSE_HEADER_TIMEOUT, else 0 = as long as the node lives)")
		},
		Run: func(ctx context.Context, base worker.Config) error {
			cfg.Config = base
			var err error
			if cfg.DataDir, err = appdir.DataDir(); err != nil {
				return err
			}
			cfg.AllowedHosts = appdir.AllowedHosts()
			debug.SetMemoryLimit(softMemory)
			cfg.HeaderTimeout = headerTimeoutOf(cmp.Or(timeout, appdir.ResponseHeaderTimeout()), cfg.Log)
			return Run(ctx, cfg)
		},
	}, args, std)
}

// headerTimeoutOf reads the timeout; what is none is no limit, with a warning
// (PX-4, DEC-11).
func headerTimeoutOf(text string, log *slog.Logger) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		log.Warn("response header timeout ignored: not a duration", "value", text)
		return 0
	}
	return d
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
	p.targets = targets{
		ctx: ctx, serving: &p.serving, plain: upstream.NewPool(upstream.Config{}), choice: make(map[string]*choice),
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
	p.targets.plain.Close()
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

func (p *proxy) closeFacades() {
	var wg sync.WaitGroup
	for _, f := range p.allFacades() {
		wg.Go(f.close)
	}
	wg.Wait()
}
