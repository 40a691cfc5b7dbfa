// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"nvpair/internal/jsonrpc"
	"nvpair/shared/discovery"
	"nvpair/shared/engine"
	"nvpair/shared/facade"
)

const (
	// lookEvery is how often the own engines are looked at (BR-69).
	lookEvery = 5 * time.Second
	// probeTimeout bounds one look.
	probeTimeout = 2 * time.Second
	// maxSilentLooks is how many looks in a row an engine that was there may leave
	// unanswered: one that loads a model, or a machine under load, is slow. One
	// that refuses the connection is gone at once.
	maxSilentLooks = 3
	// maxProbeBody is as much of an engine's model list as is looked at.
	maxProbeBody = 4 << 20
	// maxShownModels and maxShownBytes bound what clients are told of one engine's
	// models, as of those of nodes given by address.
	maxShownModels = 1000
	maxShownBytes  = 24 << 10
)

// keep holds one facade true to its engine until ctx ends: what is healthy is its
// backend and part of this node's record, what is not is neither. A facade that
// could not be brought up is tried again.
//
// Until the engine manager tells where engines are, they are looked for at the
// stock ports and at the ports of attach-only manifests.
func (f *facades) keep(ctx context.Context, l *workerLink, s *facadeState) {
	probe := &http.Client{
		Timeout:       probeTimeout,
		Transport:     &http.Transport{DisableKeepAlives: true, Proxy: nil},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	ticks := time.NewTicker(lookEvery)
	defer ticks.Stop()
	for {
		f.reclaim(ctx, l, s)
		before := s.models()
		f.tell(l, s, f.healthyPorts(ctx, probe, s))
		if !reflect.DeepEqual(before, s.models()) {
			f.b.clientNodesChanged()
		}
		f.b.priorities.push(l) // what a proxy did not take is told again
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
		if !f.isUp(s.engine) {
			f.enable(ctx, l, s)
		}
	}
}

// healthyPorts returns the ports of the own engines, the main one first (DEC-132).
// All are asked at once, so that a silent one delays nothing.
func (f *facades) healthyPorts(ctx context.Context, probe *http.Client, s *facadeState) []int {
	// An engine on its stock port, which then kept the facade from it, is one too.
	ports := []int{s.engine.BasePort, s.engine.FacadePort}
	attached := f.b.manifests.attached(s.engine.ID)
	for _, m := range attached {
		ports = append(ports, m.port())
	}
	seen := make([]sighting, len(ports))
	var wg sync.WaitGroup
	for i, port := range ports {
		if port != s.boundPort() && slices.Index(ports, port) == i {
			wg.Go(func() { seen[i] = look(ctx, probe, port) })
		}
	}
	wg.Wait()
	healthy := s.judge(ports, seen)
	if ctx.Err() == nil {
		f.b.manifests.judge(s.engine.ID, attached, func(port int) bool { return slices.Contains(healthy, port) }, func(port int) bool {
			return f.isOwnPort(port) || port >= discovery.PortNodeInfo && port <= discovery.PortLast
		})
	}
	return healthy
}

// judge returns the ports that count as healthy, and keeps what was seen.
func (s *facadeState) judge(ports []int, seen []sighting) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	silent := make(map[int]int)
	var healthy []int
	var own []ownEngine
	for i, port := range ports {
		if seen[i].sight == unseen {
			continue
		}
		if seen[i].sight == silence && slices.Contains(s.backends, port) {
			silent[port] = s.silent[port] + 1
		}
		e := ownEngine{port: port, sighting: seen[i]}
		e.up = e.sight == engineThere || silent[port] > 0 && silent[port] < maxSilentLooks
		if e.up {
			healthy = append(healthy, port)
		}
		if e.up && e.sight == silence {
			e.models = s.modelsAtLocked(port) // it had them a moment ago
		}
		own = append(own, e)
	}
	s.silent, s.own = silent, own
	return healthy
}

// ownEngine is a port of this machine at which a facade's engine is looked for.
type ownEngine struct {
	port int
	up   bool // counts as healthy
	sighting
}

// sighting is what a look at a port found.
type sighting struct {
	sight
	models []string // of an engine that answers
}

type sight int

const (
	unseen      sight = iota // not looked at: the facade itself is there
	nothing                  // nobody listens
	stranger                 // what answers is no engine
	silence                  // somebody listens and does not answer in time
	engineThere              // an engine that answers
)

// String says for people why there is no engine to use.
func (s sight) String() string {
	switch s {
	case nothing:
		return "nothing listens there"
	case stranger:
		return "what answers there is no engine"
	case silence:
		return "it does not answer in time"
	}
	return ""
}

func (s *facadeState) modelsAtLocked(port int) []string {
	for _, e := range s.own {
		if e.port == port {
			return e.models
		}
	}
	return nil
}

// look asks whether an engine is at that port (BR-69): an answer of another kind of
// server is none. The probe's header keeps our own facades from being taken for
// engines.
func look(ctx context.Context, probe *http.Client, port int) sighting {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/v1/models", port), nil)
	if err != nil {
		return sighting{sight: nothing}
	}
	req.Header.Set("X-NVPAIR-Engine-Identity-Probe", "1")
	resp, err := probe.Do(req)
	if err != nil {
		return sighting{sight: unanswered(err)}
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxProbeBody))
	switch {
	case err != nil:
		return sighting{sight: unanswered(err)}
	case resp.StatusCode == http.StatusOK && gjson.GetBytes(raw, "object").Str == "list":
		return sighting{engineThere, listed(raw)}
	}
	return sighting{sight: stranger}
}

func unanswered(err error) sight {
	var timeout net.Error
	var call *os.SyscallError
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return silence
	case errors.As(err, &call) && strings.HasPrefix(call.Syscall, "connect"):
		return nothing
	}
	return stranger // it took the connection
}

// listed returns the models of a list, cut to what is shown of them.
func listed(raw []byte) (models []string) {
	room := maxShownBytes
	gjson.GetBytes(raw, "data.#.id").ForEach(func(_, id gjson.Result) bool {
		room -= len(id.Str)
		if id.Str != "" && room >= 0 {
			models = append(models, strings.Clone(id.Str))
		}
		return room >= 0 && len(models) < maxShownModels
	})
	return models
}

// tell passes a change on to the proxy and the record.
func (f *facades) tell(l *workerLink, s *facadeState, ports []int) {
	s.mu.Lock()
	bound, changed := s.port, !s.told || !slices.Equal(s.backends, ports)
	s.mu.Unlock()
	if len(ports) > 0 && bound != 0 {
		f.b.registrations.set(discovery.Registration{Service: s.engine.ServiceKey, Port: bound})
	} else {
		f.b.registrations.remove(s.engine.ServiceKey)
	}
	if !changed {
		return
	}
	params := encode(backend(s.engine, ports))
	l.conn.Start(s.engine.ID+":"+facade.MethodSetLocalBackend, params, relayDeadline, func(r jsonrpc.Response) {
		if _, err := r.Decode(); errors.Is(err, jsonrpc.ErrClosed) {
			return
		} else if err != nil {
			f.b.cfg.Log.Warn("proxy did not take the engines' ports", "engine", s.engine.ID, "port", ports, "err", err)
			return // told again at the next look
		}
		s.mu.Lock()
		s.backends, s.told = ports, true
		s.mu.Unlock()
	})
}

// backend is what the proxy is told of the own engines.
func backend(e engine.Engine, ports []int) facade.Backend {
	b := facade.Backend{Engine: e.ID, Host: "127.0.0.1", Healthy: len(ports) > 0}
	for i, port := range ports {
		if i == 0 {
			b.Port = port
		} else {
			b.More = append(b.More, facade.LocalTarget{Host: b.Host, Port: port})
		}
	}
	return b
}

// reclaim moves a facade that was kept from its usual port there once it is free
// (DEC-140). Its running requests drain on the old one.
func (f *facades) reclaim(ctx context.Context, l *workerLink, s *facadeState) {
	s.mu.Lock()
	bound, fallback := s.port, s.fallback
	s.mu.Unlock()
	if !fallback || bound == 0 {
		return
	}
	want := f.wanted(ctx, s.engine)
	if want == 0 || bound == want || !portFree(want) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, relayDeadline)
	defer cancel()
	_, err := l.conn.Call(ctx, s.engine.ID+":"+facade.MethodSetPort, facade.Port{Port: want})
	if err != nil {
		f.b.cfg.Log.Debug("facade stays where it is", "engine", s.engine.ID, "err", err)
		return
	}
	f.b.cfg.Log.Info("facade moved to where its clients look for it", "engine", s.engine.ID, "port", want)
	f.chosen(s.engine)
}
