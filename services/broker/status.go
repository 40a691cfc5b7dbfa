// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"encoding/json"
	"os"
	"time"

	"nvpair/shared/brokerapi"
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
	for _, e := range b.cfg.Engines {
		s.Facades = append(s.Facades, brokerapi.Facade{Engine: e.ID, FacadeStatus: b.facades.status(e)})
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

// count returns the length of the store's newest list.
func (f *funnel) count() int {
	var list []json.RawMessage
	_ = json.Unmarshal(f.latest(), &list) // what is no list counts as none
	return len(list)
}
