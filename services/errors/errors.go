// SPDX-License-Identifier: Apache-2.0

// Package errors is the worker that keeps the node's one list of service errors:
// what any process wants a person to see. It is passive. It interprets nothing
// but what bounds the list, retries and ages nothing, and writes nothing to disk:
// after a restart the producers report again.
//
// Messages are handled one at a time. The answer to a request is queued before
// the change it makes, and errors:update always carries the list as it is when
// it is written: many changes may share one update, the newest list is never
// withheld.
//
// With peer sync the worker also binds the port on which the members of a cluster
// exchange their errors. Until this node can be a member, every handshake there
// is refused.
package errors

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"nvpair/internal/jsonrpc"
	"nvpair/internal/worker"
	"nvpair/shared/discovery"
	"nvpair/shared/serviceerror"
)

// evictionLogEvery limits what a producer that floods the list writes to the log.
const evictionLogEvery = time.Minute

// Config is what the worker needs from outside.
type Config struct {
	worker.Config
	// NodeID is the origin of this node's errors; empty is the host name.
	NodeID string
	// PeerSync binds Port and asks for the nodes that have this service.
	PeerSync bool
	// Port of the peers' endpoint, on all interfaces; 0 is any free one.
	Port int
	// ClusterDir holds this node's certificate and its pins. It is accepted but
	// not read: without a cluster no handshake gets that far (DEC-125).
	ClusterDir string
}

// Main runs the worker from its command line and returns its exit status.
func Main(args []string, version string, std worker.Streams) int {
	var cfg Config
	return worker.Main(worker.Program{
		Name:    "nvpair-errors",
		Version: version,
		Flags: func(fs *flag.FlagSet) {
			fs.StringVar(&cfg.NodeID, "node-id", "", "origin of this node's errors (default the host name)")
			fs.BoolVar(&cfg.PeerSync, "peer-sync", false, "bind the port for the other members of the cluster")
			fs.IntVar(&cfg.Port, "port", discovery.PortErrors, "port for --peer-sync, on all interfaces")
			fs.StringVar(&cfg.ClusterDir, "cluster-dir", "", "directory of the cluster's certificates (not used yet)")
		},
		Run: func(ctx context.Context, common worker.Config) error {
			cfg.Config = common
			return Run(ctx, cfg)
		},
	}, args, std)
}

// Run serves the link until ctx ends or the link closes, and returns when every
// connection of a peer is closed too. It fails before the first frame if the
// peers' port cannot be bound (ER-4).
func Run(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithCancel(ctx)
	var peers sync.WaitGroup
	defer peers.Wait()
	defer cancel()
	if cfg.PeerSync {
		ln, err := listen(ctx, cfg.Port)
		if err != nil {
			return err
		}
		cfg.Log.Info("peer endpoint bound", "addr", ln.Addr().String())
		peers.Go(func() { refuseAll(ctx, ln, cfg.Log) })
	}
	s := newService(cfg)
	s.link.Serve(ctx, s.handle)
	return nil
}

func listen(ctx context.Context, port int) (net.Listener, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", fmt.Sprintf(":%d", port)) // IPv4 and IPv6 (DEC-102)
	if err != nil {
		return nil, fmt.Errorf("bind the port of the peers: %w; free it or choose another with --port", err)
	}
	return ln, nil
}

// nodeID never leaves the origin empty (ER-3): such entries could not be cleared.
func nodeID(configured string) string {
	if configured != "" {
		return configured
	}
	if host, err := os.Hostname(); err == nil && host != "" {
		return host
	}
	return "unknown"
}

// service is the worker's state. It belongs to the loop of its link, except for
// the store, which the link's writer reads.
type service struct {
	log    *slog.Logger
	link   *worker.Link
	nodeID string
	store  *store
	update *jsonrpc.Stream

	evicted      int       // since the last line about it
	evictionTold time.Time // when that line was written
}

func newService(cfg Config) *service {
	cfg.MaxFrameBytes = worker.SnapshotFrame
	s := &service{log: cfg.Log, link: worker.NewLink(cfg.Config), nodeID: nodeID(cfg.NodeID), store: newStore()}
	s.update = s.link.NewStream(serviceerror.NotifyUpdate, func() (json.RawMessage, bool) {
		return s.store.list(), true
	})
	if cfg.PeerSync {
		s.subscribe()
	}
	return s
}

// subscribe asks for the peers as the first frame after the two that announce
// the worker (ER-2): a stream marked before Serve is written behind what Serve
// queues before it starts to write.
func (s *service) subscribe() {
	s.link.NewStream(discovery.MethodSubscribe, func() (json.RawMessage, bool) {
		params, err := jsonrpc.Marshal(discovery.Subscription{Services: []string{discovery.ServiceErrors}})
		return params, err == nil
	}).Mark()
}

func (s *service) handle(req *jsonrpc.Request) {
	switch req.Method {
	case serviceerror.MethodReport:
		s.report(req)
	case serviceerror.MethodClear:
		s.clear(req)
	case serviceerror.MethodGetInitial:
		if req.IsNotification() {
			s.link.Unknown(req) // ER-34
			return
		}
		req.Reply(s.store.list())
	case discovery.NotifyNodes:
		if !req.IsNotification() {
			s.link.Unknown(req)
		}
		// Peers come with the cluster part. Until then nobody could be sent to,
		// so the snapshot of the nodes is dropped.
	default:
		s.link.Unknown(req)
	}
}

// report stores an entry. A strictly older one than the stored is dropped without
// an update (ER-21). Nothing can fail once it is answered, so the answer goes
// first (ER-32).
func (s *service) report(req *jsonrpc.Request) {
	e, err := parseEntry(req.Params)
	if err != nil {
		s.refuse(req, err)
		return
	}
	req.Reply(nil)
	changed, evicted := s.store.put(e)
	if changed {
		s.update.Mark()
	}
	s.logEvictions(evicted)
}

// clear deletes an entry of this node. One of a peer is not touched: its origin
// would only send it again (ER-24). Nothing remembers the clear, so the next
// report of the id is shown again (ER-26).
func (s *service) clear(req *jsonrpc.Request) {
	var p serviceerror.Clear
	err := decode(req.Params, &p)
	if err == nil {
		err = p.Validate()
	}
	if err != nil {
		s.refuse(req, err)
		return
	}
	req.Reply(nil)
	if s.store.remove(key{p.ID, s.nodeID}) {
		s.update.Mark()
	}
}

// refuse answers a request whose params are no good; who sent a notification
// cannot be told (ER-33).
func (s *service) refuse(req *jsonrpc.Request, err error) {
	if req.IsNotification() {
		s.log.Warn("invalid notification dropped", "method", req.Method, "err", err)
		return
	}
	req.Fail(jsonrpc.InvalidParams("%v", err))
}

func (s *service) logEvictions(n int) {
	s.evicted += n
	if s.evicted == 0 || time.Since(s.evictionTold) < evictionLogEvery {
		return
	}
	s.log.Warn("error list is full, entries dropped", "entries", s.evicted)
	s.evicted, s.evictionTold = 0, time.Now()
}
