// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"time"
)

// Why a request does not get its model.
var (
	errBusy       = errors.New("queue is full")
	errLoadFailed = errors.New("load failed")
)

// demand is what a request wants of a model's instance.
type demand struct {
	model   Model
	context int  // 0 is whatever is loaded
	fresh   bool // another instance, even if one is loaded
	nowait  bool // do not wait for the load
}

// use returns an instance that is loaded, or with nowait at least loading, and
// holds it for the caller, who calls done. It loads one where none is, evicts
// others for that, and waits. On an error x.err may be set, too.
func (m *models) use(x *exchange, d demand) (*instance, error) {
	for {
		in, busy, err := m.seize(x, d)
		if err != nil {
			return nil, err
		}
		if in != nil {
			if !d.nowait && !x.await(in.ready, 0) {
				m.done(in, x.e.cfg.Dialect != Ollama)
				return nil, x.err
			}
			x.evicted = in.cut
			return in, nil
		}
		if x.await(busy, 0); x.err != nil {
			return nil, x.err
		}
	}
}

// seize returns an instance, or what to wait for until there may be one.
func (m *models) seize(x *exchange, d demand) (in *instance, busy chan struct{}, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expireLocked()
	m.clock++
	name := d.model.Name
	have := m.loaded[name]
	for _, in := range have {
		if !d.fresh && (d.context == 0 || d.context == in.context) {
			in.users++
			in.used = m.clock
			return in, nil, m.queueLocked(in)
		}
	}
	if len(x.plan) > 0 && x.plan.find(KindLoadFailed) != nil {
		return nil, nil, errLoadFailed
	}
	if m.cfg.Dialect == Ollama && len(have) > 0 { // loaded with another context: it is loaded anew, once it is idle
		if have[0].users > 0 {
			m.awaited = true
			return nil, m.changed, nil
		}
		m.removeLocked(name, have[0])
		have = nil
	}
	if !m.makeRoomLocked() {
		m.awaited = true
		return nil, m.changed, nil
	}
	in = &instance{num: len(have) + 1, loading: true, ready: make(chan struct{}), keep: defaultKeep,
		context: d.context, users: 1, used: m.clock, cut: make(chan struct{})}
	in.id = instanceID(name, in.num)
	if in.context == 0 {
		in.context = min(4096, d.model.Context)
	}
	m.loaded[name] = append(have, in)
	m.loadLocked(in)
	return in, nil, nil
}

// queueLocked refuses one more request that waits for a load. Requests for a
// loaded model never meet this limit (Ollama).
func (m *models) queueLocked(in *instance) error {
	if m.cfg.Dialect == Ollama && m.cfg.QueueLimit > 0 && in.loading && in.users-1 > m.cfg.QueueLimit {
		in.users--
		return errBusy
	}
	return nil
}

// loadLocked starts the load of an instance. Ollama loads one at a time.
func (m *models) loadLocked(in *instance) {
	if m.cfg.LoadDelay <= 0 {
		in.loading = false
		close(in.ready)
		return
	}
	delay := m.cfg.LoadDelay
	if m.cfg.Dialect == Ollama {
		now := time.Now()
		if m.loadEnd.After(now) {
			delay += m.loadEnd.Sub(now)
		}
		m.loadEnd = now.Add(delay)
	}
	time.AfterFunc(delay, func() {
		m.mu.Lock()
		in.loading = false
		m.mu.Unlock()
		close(in.ready)
	})
}

// makeRoomLocked evicts the instance that was used longest ago if there are as
// many as there may be. One in use is cut, or not to be evicted.
func (m *models) makeRoomLocked() bool {
	if m.cfg.MaxLoaded <= 0 {
		return true
	}
	count := 0
	var victim *instance
	var of string
	for name, instances := range m.loaded {
		for _, in := range instances {
			count++
			if (in.users == 0 || m.cfg.EvictCuts) && (victim == nil || in.used < victim.used) {
				victim, of = in, name
			}
		}
	}
	if count < m.cfg.MaxLoaded {
		return true
	}
	if victim == nil {
		return false
	}
	close(victim.cut)
	m.removeLocked(of, victim)
	return true
}

func (m *models) removeLocked(name string, gone *instance) {
	var kept []*instance
	for _, in := range m.loaded[name] {
		if in != gone {
			kept = append(kept, in)
		}
	}
	if kept == nil {
		delete(m.loaded, name)
		return
	}
	m.loaded[name] = kept
}

// done lets an instance go. Unless pinned, its time to live starts anew.
func (m *models) done(in *instance, pinned bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	in.users--
	if !pinned && !in.forever {
		in.until = time.Now().Add(in.keep)
	}
	if in.users == 0 && m.awaited {
		m.wakeLocked()
	}
}

// keepFor sets how long an instance stays loaded after its use; negative is for
// ever.
func (m *models) keepFor(in *instance, d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	in.forever, in.keep = d < 0, d
}
