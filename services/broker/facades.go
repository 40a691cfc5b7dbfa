// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"nvpair/internal/atomicfile"
	"nvpair/internal/jsonrpc"
	"nvpair/shared/brokerapi"
	"nvpair/shared/discovery"
	"nvpair/shared/engine"
	"nvpair/shared/facade"
	"nvpair/shared/link"
	"nvpair/shared/nodesettings"
	"nvpair/shared/serviceerror"
)

const (
	// enableDeadline bounds each facade/enable (BR-27).
	enableDeadline = 5 * time.Second
	// fallbackPorts is how many ports from the engine's base are looked at.
	fallbackPorts = 64
)

// facades is the broker's side of all facades: their ports, their readiness and
// what they advertise.
type facades struct {
	b    *Broker
	byID map[string]*facadeState // enabled engines; fixed
	list []*facadeState          // the same in table order

	alias hostAlias
}

// facadeState is one engine's facade over all incarnations of the proxy.
type facadeState struct {
	engine   engine.Engine
	services atomic.Pointer[[]string] // of its directory subscription; nil for none

	mu       sync.Mutex      // guards the rest
	up       bool            // enabled in the running proxy
	port     int             // bound, 0 until it said so
	fallback bool            // port is our choice because the usual one was taken
	ready    json.RawMessage // its last ready payload; nil while it is down
	backends []int           // ports of the own engines as last told to the proxy
	told     bool            // backends is what the proxy has
	silent   map[int]int     // looks in a row that an engine left unanswered, by port
	own      []ownEngine     // where own engines are looked for, as last seen; replaced, never changed
	aliases  []string        // bound besides port
	nodes    *jsonrpc.Stream // directory pushes; nil until it subscribed
}

func newFacades(b *Broker) *facades {
	f := &facades{b: b, byID: make(map[string]*facadeState), alias: parseOllamaHost(b.cfg.OllamaHost)}
	for _, e := range b.cfg.Engines {
		s := &facadeState{engine: e}
		f.byID[e.ID] = s
		f.list = append(f.list, s)
	}
	return f
}

// proxySpawned brings the facades up in a new proxy and then keeps them true to
// the engines they front, until ctx ends.
func proxySpawned(ctx context.Context, b *Broker, l *workerLink) {
	b.priorities.push(l)
	var wg sync.WaitGroup
	for _, s := range b.facades.list {
		b.facades.enable(ctx, l, s)
		wg.Go(func() { b.facades.keep(ctx, l, s) })
	}
	wg.Wait()
}

// proxyEnded drops what a proxy that is gone had.
func (b *Broker) proxyEnded() {
	for _, s := range b.facades.list {
		s.mu.Lock()
		s.up, s.port, s.fallback, s.ready, s.backends, s.told, s.silent, s.nodes = false, 0, false, nil, nil, false, nil, nil
		s.own, s.aliases = nil, nil
		s.services.Store(nil)
		s.mu.Unlock()
		b.registrations.remove(s.engine.ServiceKey)
	}
}

// enable asks the proxy for one facade: on the port that was chosen for it or
// that the engine's clients know, or, if that is taken, on another, with a
// warning that names both (BR-82). What fails is tried again at the next look.
func (f *facades) enable(ctx context.Context, l *workerLink, s *facadeState) {
	want := f.wanted(ctx, s.engine)
	port := want
	if want == 0 || !portFree(want) {
		port = f.fallback(s.engine, want)
	}
	bound, err := f.enableOn(ctx, l, s, port)
	if errors.Is(err, errPortLost) { // taken between the look and the bind (BR-28)
		port = f.fallback(s.engine, want)
		bound, err = f.enableOn(ctx, l, s, port)
	}
	switch {
	case ctx.Err() != nil || errors.Is(err, jsonrpc.ErrClosed):
		return // the proxy ended: its successor is asked
	case err != nil:
		f.blocked(s.engine, fmt.Sprintf("the %s facade could not be brought up: %v", s.engine.DisplayName, err))
		return
	case want != 0 && bound != want:
		move := "Move that program to another port"
		if want == s.engine.FacadePort { // often it is the engine itself
			move += fmt.Sprintf(", an engine to %d", s.engine.BasePort)
		}
		f.blocked(s.engine, fmt.Sprintf("port %d is in use by another program; %s clients are served on port %d instead. %s; the node takes port %d as soon as it is free",
			want, s.engine.DisplayName, bound, move, want))
	default:
		f.b.funnel.lower(blockedID(s.engine))
	}
	f.lowerUnheldAlias(ctx, s.engine)
	s.mu.Lock()
	s.up, s.fallback = true, want != 0 && bound != want
	s.mu.Unlock()
	f.b.manual.replay(l, s.engine)
}

// forgetBackend makes the next look tell the proxy again where the engine is: a
// client has told it something else meanwhile.
func (f *facades) forgetBackend(e engine.Engine) {
	if s := f.byID[e.ID]; s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.told = false
	}
}

// wanted is the port that a facade is to have: the one that was chosen for it,
// else the one that the engine's clients know, if the user lets it be claimed,
// else 0 for any (BR-83). Settings that cannot be read let it be claimed, as
// their default does.
func (f *facades) wanted(ctx context.Context, e engine.Engine) int {
	if saved := f.savedPort(e); saved != 0 {
		return saved
	}
	if !f.managed(ctx) {
		return 0
	}
	return e.FacadePort
}

// managed reports whether the user lets the ports of the engines' clients be
// claimed.
func (f *facades) managed(ctx context.Context) bool {
	l := f.b.byName[workerSettings].current()
	if l == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, enableDeadline)
	defer cancel()
	var managed struct {
		Value *bool `json:"value"`
	}
	raw, err := l.conn.Call(ctx, nodesettings.GetForcePorts, nil)
	return err != nil || json.Unmarshal(raw, &managed) != nil || managed.Value == nil || *managed.Value
}

// savedPort is the port that the user chose for a facade, 0 for none (PX-19).
func (f *facades) savedPort(e engine.Engine) int {
	var saved facade.Port
	raw, err := atomicfile.Read(filepath.Join(f.b.cfg.DataDir, e.SavedPort), maxPortFile)
	if err != nil || json.Unmarshal(raw, &saved) != nil || saved.Port < 1 || saved.Port > 65535 {
		return 0
	}
	return saved.Port
}

// maxPortFile bounds a file that holds one number.
const maxPortFile = 4 << 10

// chosen says that a client has moved the facade to a port of its choice.
func (f *facades) chosen(e engine.Engine) {
	if s := f.byID[e.ID]; s != nil {
		s.mu.Lock()
		s.fallback = false
		s.mu.Unlock()
		f.b.funnel.lower(blockedID(e))
	}
}

func blockedID(e engine.Engine) string { return e.Proxy() + ":port-ownership-blocked" }

func (f *facades) blocked(e engine.Engine, message string) {
	f.b.cfg.Log.Warn("facade is not where its clients look for it", "engine", e.ID, "err", message)
	f.b.funnel.raise(serviceerror.ServiceError{
		ID: blockedID(e), Message: message, EngineType: e.ID,
		Severity: serviceerror.SeverityWarning, Action: serviceerror.ActionNone,
	})
}

// fallback is the first free port after the engine's own that nobody else of the
// table may want.
func (f *facades) fallback(e engine.Engine, not int) int {
	for port := e.BasePort + 1; port < e.BasePort+fallbackPorts; port++ {
		if port != not && port != f.alias.port && !reserved(port) && portFree(port) {
			return port
		}
	}
	return e.BasePort + 1 // the bind then says that it is taken
}

func reserved(port int) bool {
	for _, e := range engine.All() {
		if port == e.FacadePort || port == e.BasePort {
			return true
		}
	}
	return port >= discovery.PortNodeInfo && port <= discovery.PortLast
}

// portFree reports whether nobody listens there: on some systems all interfaces
// can be had while loopback is taken.
func portFree(port int) bool {
	for _, host := range []string{"127.0.0.1", ""} {
		ln, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return false
		}
		_ = ln.Close()
	}
	return true
}

// errPortLost means that the port was taken when the proxy wanted to bind it.
var errPortLost = errors.New("port is taken")

func (f *facades) enableOn(ctx context.Context, l *workerLink, s *facadeState, port int) (bound int, err error) {
	ctx, cancel := context.WithTimeout(ctx, enableDeadline)
	defer cancel()
	raw, err := l.conn.Call(ctx, facade.MethodEnable, facade.Enable{
		Engine: s.engine.ID, Port: port, IgnorePersistedPort: true, HostUUID: f.b.cfg.NodeID,
		AliasAddresses: f.aliasFor(ctx, s.engine, port),
	})
	var answer *jsonrpc.Error
	switch {
	case errors.As(err, &answer) && answer.Code == link.CodePortTaken:
		return 0, fmt.Errorf("%w: %s", errPortLost, answer.Message)
	case errors.As(err, &answer):
		return 0, err
	case err != nil: // no answer: it counts as up if it said so itself (BR-28)
		if bound := s.boundPort(); bound != 0 {
			return bound, nil
		}
		return 0, err
	}
	var enabled facade.Enabled
	if err := json.Unmarshal(raw, &enabled); err != nil {
		return 0, err
	}
	s.mu.Lock()
	s.aliases = enabled.Aliases
	s.mu.Unlock()
	return enabled.Port, nil
}

func (s *facadeState) boundPort() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.port
}

// status is what <engine>-proxy:get-status answers; the zero value for a facade
// that is down or not enabled.
func (f *facades) status(e engine.Engine) brokerapi.FacadeStatus {
	s := f.byID[e.ID]
	if s == nil {
		return brokerapi.FacadeStatus{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return brokerapi.FacadeStatus{Ready: s.ready != nil, Port: s.port}
}

// baseline is the last ready payload, nil for a facade that is down.
func (f *facades) baseline(e engine.Engine) json.RawMessage {
	s := f.byID[e.ID]
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready
}

// isUp reports whether a facade can be asked.
func (f *facades) isUp(e engine.Engine) bool {
	s := f.byID[e.ID]
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up
}

// fromProxyProcess handles what concerns the process and no one facade.
func (b *Broker) fromProxyProcess(l *workerLink, req *jsonrpc.Request) bool {
	if req.Method != facade.NotifyNodeActivity {
		return b.fromProxyJobs(l, req)
	}
	var a discovery.Activity
	if err := json.Unmarshal(req.Params, &a); err != nil {
		l.undecodable(req, err)
		return true
	}
	a.AgeMillis = min(max(a.AgeMillis, 0), maxActivityAge.Milliseconds())
	if scanner := b.byName[workerScanner].current(); scanner != nil && a.HostUUID != "" {
		if err := scanner.conn.Notify(discovery.MethodNodeActivity, a); err != nil {
			b.cfg.Log.Debug("activity dropped", "err", err) // reported again in two seconds
		}
	}
	return true
}

// maxActivityAge is the oldest activity that is told as such (BR-45).
const maxActivityAge = time.Hour

// fromProxy handles the proxy's notifications.
func (b *Broker) fromProxy(l *workerLink, req *jsonrpc.Request) bool {
	id, bare := engine.SplitMethod(req.Method)
	if id == "" {
		return b.fromProxyProcess(l, req)
	}
	s := b.facades.byID[id]
	if s == nil {
		return false
	}
	switch bare {
	case facade.NotifyReady:
		var r facade.Ready
		if err := json.Unmarshal(req.Params, &r); err != nil || r.Port <= 0 {
			return false // a malformed one is ignored (BR-31)
		}
		s.mu.Lock()
		s.up, s.port, s.ready = true, r.Port, req.Params
		s.mu.Unlock()
	case discovery.MethodSubscribe:
		s.subscribe(b, l, req)
		return true
	case serviceerror.MethodReport:
		if err := b.funnel.reportOfWorker(req.Params); err != nil {
			l.undecodable(req, err)
		}
		return true
	case serviceerror.MethodClear:
		if err := b.funnel.clear(req.Params); err != nil {
			l.undecodable(req, err)
		}
		return true
	}
	if b.client.facades[id].Load() {
		b.client.notifySoon(s.engine.Proxy()+":"+bare, req.Params)
	}
	return true
}

// subscribe arms the directory push to one facade (BR-43).
func (s *facadeState) subscribe(b *Broker, l *workerLink, req *jsonrpc.Request) {
	var sub discovery.Subscription
	if err := unmarshalOptional(req.Params, &sub); err != nil {
		l.undecodable(req, err)
		return
	}
	s.services.Store(&sub.Services)
	stream := l.conn.NewStream(s.engine.ID+":"+discovery.NotifyNodes, func() (json.RawMessage, bool) {
		services := s.services.Load()
		if services == nil {
			return nil, false
		}
		return encode(b.nodes.directory(*services)), true
	})
	s.mu.Lock()
	s.nodes = stream
	s.mu.Unlock()
	stream.Mark()
}

// nodesChanged marks the directory for every facade that wants it.
func (f *facades) nodesChanged() {
	for _, s := range f.list {
		s.mu.Lock()
		stream := s.nodes
		s.mu.Unlock()
		if stream != nil {
			stream.Mark()
		}
	}
}
