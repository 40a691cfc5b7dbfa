// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"nvpair/internal/jsonrpc"
	"nvpair/shared/discovery"
	"nvpair/shared/nodeinfo"
)

// relayDeadline is for the broker's own calls to the scanner (DI-120).
const relayDeadline = 5 * time.Second

// registrations is what this node advertises: no worker registers itself, the
// broker does it for all and tells every new scanner again (BR-42).
type registrations struct {
	b *Broker

	// mu guards entries. It is held over Conn.Start, which only queues, so that
	// the scanner sees changes and replays in one order.
	mu      sync.Mutex
	entries map[string]discovery.Registration // by service code
	told    *jsonrpc.Stream                   // of the whole set, to the newest node-info; nil before the first
}

func newRegistrations(b *Broker) *registrations {
	return &registrations{b: b, entries: make(map[string]discovery.Registration)}
}

// set registers a service. A service without a name or port is refused, an
// unchanged one is no event.
func (r *registrations) set(reg discovery.Registration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old, known := r.entries[reg.Service]
	if reg.Service == "" || reg.Port <= 0 || (known && old.Port == reg.Port) {
		return
	}
	r.entries[reg.Service] = reg
	r.changedLocked()
	if l := r.b.byName[workerScanner].current(); l != nil {
		r.send(l, reg)
	}
}

// remove withdraws a service; one that is not registered is no event.
func (r *registrations) remove(service string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.entries[service]; !known {
		return
	}
	delete(r.entries, service)
	r.changedLocked()
	if l := r.b.byName[workerScanner].current(); l != nil {
		l.conn.Start(discovery.MethodUnregister, encode(discovery.Unregistration{Service: service}), relayDeadline,
			func(resp jsonrpc.Response) {
				if _, err := resp.Decode(); err != nil {
					r.b.cfg.Log.Warn("service not withdrawn", "service", service, "err", err)
				}
			})
	}
}

// changedLocked marks the set for node-info, which answers with it (MN-40).
func (r *registrations) changedLocked() {
	if r.told != nil {
		r.told.Mark()
	}
}

// follow tells a new node-info the set, and each change from then on.
func (r *registrations) follow(l *workerLink) {
	stream := l.conn.NewStream(nodeinfo.MethodSetServices, func() (json.RawMessage, bool) {
		return encode(nodeinfo.Services{Services: r.ports()}), true
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = stream
	stream.Mark()
}

// ports returns the ports of all registered services, by service code.
func (r *registrations) ports() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	ports := make(map[string]int, len(r.entries))
	for service, reg := range r.entries {
		ports[service] = reg.Port
	}
	return ports
}

// replay tells a new scanner everything, in key order.
func (r *registrations) replay(l *workerLink) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, service := range slices.Sorted(maps.Keys(r.entries)) {
		r.send(l, r.entries[service])
	}
}

func (r *registrations) send(l *workerLink, reg discovery.Registration) {
	l.conn.Start(discovery.MethodRegister, encode(reg), relayDeadline, func(resp jsonrpc.Response) {
		if _, err := resp.Decode(); err != nil {
			r.b.cfg.Log.Warn("service not registered", "service", reg.Service, "err", err)
		}
	})
}
