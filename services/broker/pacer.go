// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"sync"
	"time"
)

// pacer passes marks on: one after a quiet time at once, further ones together when
// the period since the last is over. None is lost.
type pacer struct {
	every time.Duration
	mark  func() // must not wait

	mu    sync.Mutex  // guards the rest; held over mark
	last  time.Time   // when mark was called
	timer *time.Timer // nil while no mark waits
}

// Mark has mark called, now or when the period is over.
func (p *pacer) Mark() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		return
	}
	if wait := p.every - time.Since(p.last); wait > 0 {
		p.timer = time.AfterFunc(wait, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.timer = nil
			p.passLocked()
		})
		return
	}
	p.passLocked()
}

func (p *pacer) passLocked() {
	p.last = time.Now()
	p.mark()
}
