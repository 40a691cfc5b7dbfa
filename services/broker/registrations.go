// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"maps"
	"slices"
	"sync"
	"time"

	"nvpair/internal/jsonrpc"
	"nvpair/shared/discovery"
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
	if l := r.b.byName[workerScanner].current(); l != nil {
		l.conn.Start(discovery.MethodUnregister, encode(discovery.Unregistration{Service: service}), relayDeadline,
			func(resp jsonrpc.Response) {
				if _, err := resp.Decode(); err != nil {
					r.b.cfg.Log.Warn("service not withdrawn", "service", service, "err", err)
				}
			})
	}
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
