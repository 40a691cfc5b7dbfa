// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"nvpair/shared/discovery"
)

// maxHosts bounds the cache (DEC-137).
const maxHosts = 512

// TelemetrySource is who observed a node. The lower number outranks.
type TelemetrySource int

const (
	ScannerTelemetry TelemetrySource = iota
	ManualTelemetry
	telemetrySources
)

// Telemetry is the newest observation of each node's GPU load from each source
// (BR-66). Ages advance on the monotonic clock. The zero value is not usable;
// make one with NewTelemetry.
type Telemetry struct {
	mu    sync.Mutex // guards hosts
	hosts map[string]observations
}

// observations are those of one host, by source.
type observations [telemetrySources]*observation

type observation struct {
	discovery.Telemetry
	received time.Time
}

// NewTelemetry returns an empty cache.
func NewTelemetry() *Telemetry { return &Telemetry{hosts: make(map[string]observations)} }

// Observe takes an observation and returns what the scheduler is to be told; ok
// is false if that is nothing: no host is named, or a better source has it. A new
// host beyond the bound takes the place of the one that was heard of longest ago.
func (t *Telemetry) Observe(source TelemetrySource, o discovery.Telemetry) (out discovery.Telemetry, ok bool) {
	if o.HostUUID == "" {
		return out, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	host, known := t.hosts[o.HostUUID]
	if !known && len(t.hosts) >= maxHosts {
		t.evictLocked()
	}
	host[source] = &observation{Telemetry: o, received: time.Now()}
	t.hosts[o.HostUUID] = host
	best := host.best()
	return best.aged(), best == host[source]
}

// Forget drops what a source said of a host and returns what the scheduler is to
// be told instead: the other source's observation, or an invalid one, so that it
// forgets the host at once. ok is false if that source had said nothing, or not
// what counted.
func (t *Telemetry) Forget(source TelemetrySource, hostUUID string) (out discovery.Telemetry, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	host := t.hosts[hostUUID]
	if host[source] == nil {
		return out, false
	}
	counted := host.best() == host[source]
	host[source] = nil
	best := host.best()
	if best == nil {
		delete(t.hosts, hostUUID)
		return discovery.Telemetry{HostUUID: hostUUID}, true
	}
	t.hosts[hostUUID] = host
	return best.aged(), counted
}

// All returns the observation of every host that counts, by host uuid.
func (t *Telemetry) All() []discovery.Telemetry {
	t.mu.Lock()
	list := make([]discovery.Telemetry, 0, len(t.hosts))
	for _, host := range t.hosts {
		list = append(list, host.best().aged())
	}
	t.mu.Unlock()
	slices.SortFunc(list, func(a, b discovery.Telemetry) int { return cmp.Compare(a.HostUUID, b.HostUUID) })
	return list
}

func (t *Telemetry) evictLocked() {
	var oldest string
	var heard time.Time
	for uuid, host := range t.hosts {
		latest := host.best().received
		for _, o := range host {
			if o != nil && o.received.After(latest) {
				latest = o.received
			}
		}
		if oldest == "" || latest.Before(heard) {
			oldest, heard = uuid, latest
		}
	}
	delete(t.hosts, oldest)
}

// best returns the observation that counts, nil if there is none.
func (o observations) best() *observation {
	for _, one := range o {
		if one != nil {
			return one
		}
	}
	return nil
}

// aged returns the observation with the age it has by now, as the scheduler reads
// it: the load is an integer there (JS section 3).
func (o *observation) aged() discovery.Telemetry {
	t := o.Telemetry
	t.GPUUse = math.Round(t.GPUUse)
	if !t.Valid {
		t.AgeMillis = 0
		return t
	}
	held := time.Since(o.received).Milliseconds()
	age := max(t.AgeMillis, 0)
	t.AgeMillis = age + min(held, math.MaxInt64-age)
	return t
}
