// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"encoding/json"
	"os"
	"time"

	"nvpair/shared/brokerapi"
	"nvpair/shared/discovery"
	"nvpair/shared/engine"
	"nvpair/shared/facade"
	"nvpair/shared/serviceerror"
)

// status answers broker:status.
func (b *Broker) status() brokerapi.Status {
	s := brokerapi.Status{
		Version: b.cfg.Version, PID: os.Getpid(), NodeID: b.cfg.NodeID, DataDir: b.cfg.DataDir,
		UptimeMillis: time.Since(b.started).Milliseconds(),
		Workers:      []brokerapi.Worker{},
		Facades:      []brokerapi.Facade{},
		ErrorCount:   b.funnel.count(),
		DroppedCount: b.client.conn.Dropped(),
	}
	for _, w := range b.workers {
		s.Workers = append(s.Workers, w.status())
	}
	nodes := b.nodes.available()
	for _, e := range b.cfg.Engines {
		s.Facades = append(s.Facades, b.facadeStatus(e, nodes))
	}
	return s
}

func (w *workerState) status() brokerapi.Worker {
	w.mu.Lock()
	s := brokerapi.Worker{Name: w.name, State: brokerapi.StateAbsent, Version: w.version, LastEnd: w.failed}
	w.mu.Unlock()
	switch {
	case w.child != nil:
		c := w.child.Status()
		s.State, s.PID, s.LastEnd = string(c.State), c.PID, c.LastEnd
		s.Restarts = max(0, c.Generation-1)
		s.SinceMillis = time.Since(c.Since).Milliseconds()
	case s.LastEnd != "":
		s.State = brokerapi.StateFailed
	}
	return s
}

// facadeStatus says of a facade what a person wants to know.
func (b *Broker) facadeStatus(e engine.Engine, nodes []discovery.AvailableNode) brokerapi.Facade {
	s := b.facades.byID[e.ID]
	f := brokerapi.Facade{Engine: e.ID, FacadeStatus: b.facades.status(e), Note: b.funnel.message(blockedID(e))}
	s.mu.Lock()
	own := s.own
	f.Aliases = s.aliases
	s.mu.Unlock()
	switch {
	case f.Ready || f.Note != "":
	case b.byName[workerProxy].current() == nil:
		f.Note = "nvpair-proxy does not run"
	default:
		f.Note = "it is being brought up"
	}
	if e.Aliases && len(f.Aliases) == 0 {
		f.AliasNote = b.funnel.message(facade.AliasBlocked)
	}
	for _, o := range own {
		shown := brokerapi.Engine{Port: o.port, Up: o.up, Models: len(o.models)}
		if !o.up {
			shown.Note = o.sight.String()
		}
		f.Engines = append(f.Engines, shown)
	}
	for _, n := range nodes {
		if models := n.ModelsByEngine[e.ID]; len(models) > 0 && n.HostUUID != b.cfg.NodeID {
			f.Engines = append(f.Engines, brokerapi.Engine{Node: n.Name, Up: true, Models: len(models)})
		}
	}
	return f
}

// message returns what the condition of this node with that id says, "" while it
// does not stand.
func (f *funnel) message(id string) string {
	f.mu.Lock()
	e, stands := f.standing[id]
	f.mu.Unlock()
	if stands {
		return e.Message
	}
	var list []serviceerror.ServiceError
	_ = json.Unmarshal(f.latest(), &list) // what is no list holds nothing
	for _, e := range list {
		if e.ID == id && e.NodeID == f.b.cfg.NodeID {
			return e.Message
		}
	}
	return ""
}

// count returns the length of the store's newest list.
func (f *funnel) count() int {
	var list []json.RawMessage
	_ = json.Unmarshal(f.latest(), &list) // what is no list counts as none
	return len(list)
}
