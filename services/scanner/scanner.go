// SPDX-License-Identifier: Apache-2.0

// Package scanner is the worker that keeps the directory of nodes: it announces
// this node and its services by multicast DNS, hears the others, asks each for its
// hardware and load, and finds out which of them live.
//
// A node enters the directory with its first record (peers.go) and is removed when
// it was neither heard for a minute nor answers (liveness.go), or right after its
// goodbye if it no longer answers (farewell.go). What it says of itself over HTTP
// is added (fetch.go), and its load sampled (telemetry.go). Nothing that is said on
// the network removes a node that answers.
//
// Whom to trust is in the cluster's directory (trust.go). Members alone tell their
// models (models.go), and they are asked at their last places where they are not
// heard (members.go).
//
// Messages are handled one at a time; the answer to a request is queued before
// the events it causes. Events about one node leave in the order of the changes;
// this node's own entry is discovered right after the worker has announced itself.
package scanner

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"nvpair/internal/appdir"
	"nvpair/internal/clustertrust"
	"nvpair/internal/jsonrpc"
	"nvpair/internal/mdns"
	"nvpair/internal/netwatch"
	"nvpair/internal/upstream"
	"nvpair/internal/worker"
	"nvpair/shared/discovery"
)

// sweepEvery is how often the addresses are ranked anew, with or without a change of
// the network (DI-28).
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
	// Interfaces limits the node to those with one of these names; empty is all.
	Interfaces []string
	// Network is what multicast DNS goes through; nil is the machine's own, whose
	// changes are watched.
	Network mdns.Network
	// Dial opens the connections to other nodes; nil is plain TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Main runs the worker from its command line and returns its exit status.
func Main(args []string, version string, std worker.Streams) int {
	runtime.GOMAXPROCS(2) // with one, a slow system call hands the rest to another thread; with many, threads wake and find nothing to do
	var cfg Config
	return worker.Main(worker.Program{
		Name:    "nvpair-node-scanner",
		Version: version,
		Flags: func(fs *flag.FlagSet) {
			fs.StringVar(&cfg.ClusterDir, "cluster-dir", "",
				"the cluster's directory; its parent holds the node's identity (default the data directory)")
			fs.Func("interfaces", "comma-separated names of the only network interfaces to use (default all usable ones)",
				func(csv string) error { cfg.Interfaces = splitList(csv); return nil })
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
	defer s.infos.close()
	defer s.models.reset()
	defer s.running.Wait()
	defer s.cancel()
	s.running.Go(func() { s.mdns.Run(s.ctx) })
	s.running.Go(func() { s.publish(s.ctx) })
	s.running.Go(func() { s.sweep(s.ctx) })
	if cfg.Network == nil {
		s.running.Go(func() { netwatch.Run(s.ctx, netwatch.Config{Log: s.log}, s.networkChanged) })
	}
	s.running.Go(func() { s.peers.scan(s.ctx, s.browser.Query) })
	s.running.Go(func() { s.telemetry.run(s.ctx) })
	s.running.Go(func() { s.owed.run(s.ctx) })
	s.link.Serve(ctx, s.handle)
	return nil
}

// service is the worker. Its fields do not change once it serves.
type service struct {
	log        *slog.Logger
	link       *worker.Link
	base       string // directory of the identity
	addresses  func() ([]string, error)
	interfaces []string
	dial       func(ctx context.Context, network, addr string) (net.Conn, error)

	ctx     context.Context // ends when the worker is to stop
	cancel  context.CancelFunc
	running worker.Group // everything that was started

	self      *selfEntry
	directory *directory
	peers     *peers
	infos     *infos
	evidence  *evidence
	telemetry *telemetry
	leaving   chan struct{} // capacity farewellsAtOnce: nodes that are being seen off
	asking    chan struct{} // capacity inventoriesAtOnce: new nodes that are asked for their inventory
	owed      *owed
	mdns      *mdns.Conn
	browser   *mdns.Browser

	trust    *clustertrust.View
	models   *models
	members  members
	applying sync.Mutex          // guards applied and members.known, and is held over what follows from them, small local files included; comes before all other locks
	applied  *clustertrust.State // what the directory and the record stand for

	mu       sync.Mutex // guards the rest
	observed []string   // own addresses at which peers reached this node
	own      map[netip.Addr]bool
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
	s := &service{
		log: cfg.Log, base: base, addresses: cfg.Addresses, interfaces: cfg.Interfaces, dial: cfg.Dial,
		link: worker.NewLink(cfg.Config), infos: newInfos(cfg.Dial), evidence: newEvidence(), asking: make(chan struct{}, inventoriesAtOnce),
		leaving: make(chan struct{}, farewellsAtOnce),
	}
	m := mdns.Config{Interfaces: cfg.Interfaces, Network: cfg.Network, Log: cfg.Log}
	if cfg.Network == nil {
		m.PollEvery, m.Debounce = -1, -1 // networkChanged tells, of changes that have settled
	}
	s.mdns = mdns.New(m)
	s.owed = newOwed(s.send)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if s.addresses == nil {
		s.addresses = s.localAddresses
	}
	if s.dial == nil {
		s.dial = (&net.Dialer{}).DialContext
	}
	s.self = newSelfEntry(id, name(cfg.Hostname), s.emit)
	s.directory = newDirectory(s.emit)
	s.peers = &peers{s: s, dir: s.directory, byUUID: make(map[string]*peer)}
	s.telemetry = newTelemetry(s)
	s.members = members{path: membersPath(base), log: cfg.Log}
	s.members.load()
	s.trust = clustertrust.Open(cfg.ClusterDir, cfg.Log)
	s.models = &models{trust: s.trust, dial: s.dial, plain: s.infos.pool, pools: make(map[string]*upstream.Pool)}
	s.refreshTrust()
	s.refreshAddresses()
	s.self.announce() // queued right behind ready and hello (DI-112)
	if s.browser, err = s.mdns.Browse(serviceType, s.peers.sighted); err != nil {
		s.cancel()
		return nil, err
	}
	return s, nil
}

// firstRecordWait is how long the first announcement waits for node-info, which the
// broker starts beside this worker.
const firstRecordWait = 500 * time.Millisecond

// publish makes this node known once it can be asked: a record without a port tells
// others of a node of which they cannot find out whether it lives. Its record follows
// every change from then on.
func (s *service) publish(ctx context.Context) {
	timer := time.NewTimer(firstRecordWait)
	defer timer.Stop()
	select {
	case <-s.self.askable:
	case <-timer.C:
	case <-ctx.Done():
		return
	}
	r := s.self.record()
	p, err := s.mdns.Publish(mdns.Service{Instance: s.self.name, Type: serviceType, Host: s.self.name, Port: srvPort, TXT: r.txt(s.log)})
	if err != nil {
		s.log.Warn("this node is not announced", "err", err)
		return
	}
	s.self.follow(func(r record) {
		if err := p.SetTXT(r.txt(s.log)); err != nil {
			s.log.Warn("node record not changed", "err", err)
		}
	})
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

// emit queues an event. It is called under the locks of entries, and never waits.
// The broker builds its directory of them, so an event about a node that the link
// does not take is sent later.
func (s *service) emit(method string, params any) {
	if e, ok := params.(discovery.NodeEvent); ok {
		s.owed.emit(e.Node.HostUUID, method, params)
		return
	}
	s.send(method, params) // another sample follows
}

// send reports false when the link is full.
func (s *service) send(method string, params any) bool {
	return !errors.Is(s.link.Notify(method, params), jsonrpc.ErrQueueFull)
}

// sweep looks at the addresses until ctx ends.
func (s *service) sweep(ctx context.Context) {
	ticks := time.NewTicker(sweepEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			s.refreshAddresses()
			s.refreshInventories(ctx)
			s.rememberMembers()
		case <-ctx.Done():
			return
		}
	}
}

// networkChanged hears of changes from the system (DI-107).
func (s *service) networkChanged() {
	s.mdns.NetworkChanged() // its links may have changed where the best addresses have not
	s.refreshAddresses()
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
		s.mdns.NetworkChanged()
	}
}
