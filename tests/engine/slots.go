// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// slots bounds how many requests a model answers at once. The rest waits, each
// without a byte, in the order in which it came.
type slots struct {
	limit, queue int          // 0 is without
	running      atomic.Int64 // requests being answered, of all models
	waiting      atomic.Int64 // requests that wait for a slot

	mu   sync.Mutex // guards what follows
	busy map[string]int
	line map[string][]chan struct{} // capacity 0; closed to hand a slot over
}

func newSlots(limit, queue int) *slots {
	return &slots{limit: limit, queue: queue, busy: map[string]int{}, line: map[string][]chan struct{}{}}
}

// enter waits for a slot of a model. It returns errBusy for one too many in the
// queue and x.err if the client leaves; without an error the caller calls leave.
func (s *slots) enter(x *exchange, model string) error {
	if s.limit <= 0 {
		s.running.Add(1)
		return nil
	}
	s.mu.Lock()
	if s.busy[model] < s.limit && len(s.line[model]) == 0 {
		s.busy[model]++
		s.mu.Unlock()
		s.running.Add(1)
		return nil
	}
	if s.queue > 0 && len(s.line[model]) >= s.queue && x.e.cfg.Dialect != Ollama {
		s.mu.Unlock()
		return errBusy
	}
	turn := make(chan struct{})
	s.line[model] = append(s.line[model], turn)
	s.mu.Unlock()
	if x.early != nil { // vLLM's clients wait with a head in their hands
		x.startStream(x.early.contentType(), true)
	}
	s.waiting.Add(1)
	got := x.await(turn, 0)
	s.waiting.Add(-1)
	if got {
		s.running.Add(1)
		return nil
	}
	s.mu.Lock()
	i := slices.Index(s.line[model], turn)
	if i >= 0 {
		s.line[model] = slices.Delete(s.line[model], i, i+1)
	}
	s.mu.Unlock()
	if i < 0 { // it was handed over at this very moment
		s.free(model)
	}
	return x.err
}

// leave frees the slot, for a client that left only after a while where the
// engine has ghosts.
func (s *slots) leave(x *exchange, model string) {
	ghost := x.e.cfg.Ghost
	if f := x.plan.find(KindGhost); f != nil {
		ghost = f.duration()
	}
	if ghost > 0 && x.err == errLeft {
		time.AfterFunc(ghost, func() { s.release(model) })
		return
	}
	s.release(model)
}

func (s *slots) release(model string) {
	s.running.Add(-1)
	if s.limit > 0 {
		s.free(model)
	}
}

// free hands a slot to the next in the line.
func (s *slots) free(model string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if line := s.line[model]; len(line) > 0 {
		s.line[model] = line[1:]
		close(line[0])
		return
	}
	s.busy[model]--
}
