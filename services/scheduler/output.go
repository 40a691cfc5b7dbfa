// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"encoding/json"
	"io"
	"slices"
	"time"

	"nvpair/internal/jsonrpc"
	"nvpair/shared/schedule"
)

// output is what one engine's reader has got and gets.
type output struct {
	engine string
	stream *jsonrpc.Stream

	// Guarded by service.mu. The lists are never changed, only replaced.
	delivered []schedule.NodeRank // by a write that succeeded (JS-41)
	at        int64               // when, in Unix milliseconds; 0 = never
	writing   []schedule.NodeRank // by the write that comes next
	isWriting bool
	forced    bool // to be written even if it is delivered already (JS-40)
}

// dueLocked reports whether a change is to be marked now. Otherwise a mark is
// pending already, or the end of the window brings one.
func (s *service) dueLocked(now time.Time) bool {
	if s.marked || s.windowOpen {
		return false
	}
	if wait := s.lastOutput.Add(outputWindow).Sub(now); wait > 0 {
		s.windowOpen = true
		s.window.Reset(wait)
		return false
	}
	s.marked = true
	return true
}

func (s *service) windowEnded() {
	s.mu.Lock()
	s.windowOpen = false
	s.marked = true
	s.mu.Unlock()
	s.mark()
}

// openRoundLocked starts to wait for the interval if its end can make a
// difference. A wait in progress stays as it is (JS-46).
func (s *service) openRoundLocked() {
	if !s.roundOpen && (s.retry || s.view.mayExpire()) {
		s.roundOpen = true
		s.round.Reset(s.interval)
	}
}

// roundEnded looks for samples that have become stale (JS-32) and repeats a
// failed write (JS-41).
func (s *service) roundEnded() {
	s.mu.Lock()
	now := time.Now()
	s.roundOpen = false
	changed := s.view.expire(now) || s.retry
	due := changed && s.dueLocked(now)
	s.openRoundLocked()
	s.mu.Unlock()
	if due {
		s.mark()
	}
}

// force has the ranking written for every engine whatever was delivered.
func (s *service) force() {
	s.mu.Lock()
	for _, o := range s.outputs {
		o.forced = true
	}
	due := s.dueLocked(time.Now())
	s.mu.Unlock()
	if due {
		s.mark()
	}
}

// mark has the writer ask for the rankings, always the first engine's first: its
// snapshot is the one that ranks.
func (s *service) mark() {
	for _, o := range s.outputs {
		o.stream.Mark()
	}
}

// snapshot returns what is to be written for engine i, if anything. The writer
// calls it right before the write that carries the result.
func (s *service) snapshot(i int) (params json.RawMessage, some bool) {
	ranks, some := s.next(i)
	if !some {
		return nil, false
	}
	return encodePriority(s.outputs[i].engine, ranks), true
}

func (s *service) next(i int) (ranks []schedule.NodeRank, some bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if i == 0 {
		s.marked, s.retry = false, false
		s.current = s.view.rank(now)
	}
	o := s.outputs[i]
	if !o.forced && slices.Equal(s.current, o.delivered) { // JS-38, JS-39
		return nil, false
	}
	o.forced = false
	o.writing, o.isWriting = s.current, true
	s.lastOutput = now
	return s.current, true
}

// watchedLink tells how each write of the link ended. The write that follows a
// stream's snapshot on the writer's goroutine is the one that carries it.
type watchedLink struct {
	io.ReadWriteCloser
	wrote func(ok bool)
}

func (w *watchedLink) Write(b []byte) (int, error) {
	n, err := w.ReadWriteCloser.Write(b)
	w.wrote(err == nil && n == len(b))
	return n, err
}

// wrote notes what the last write delivered. Engines whose rankings shared a
// write that was cut short all count as not delivered: to get one twice does no
// harm.
func (s *service) wrote(ok bool) {
	s.mu.Lock()
	now := time.Now().UnixMilli()
	first := s.outputs[0]
	before, after, news := first.delivered, first.writing, first.isWriting && ok
	for _, o := range s.outputs {
		switch {
		case !o.isWriting:
			continue
		case ok:
			o.delivered, o.at = o.writing, now
		default:
			s.retry = true
			s.openRoundLocked()
		}
		o.writing, o.isWriting = nil, false
	}
	s.mu.Unlock()
	if news { // the other engines' orders are the same
		s.logOrder(before, after)
	}
}

// logOrder logs a new order (JS-44), not the whole of it: it may be long.
func (s *service) logOrder(before, after []schedule.NodeRank) {
	s.log.Debug("ranking delivered", "nodes", len(after))
	sameNode := func(a, b schedule.NodeRank) bool { return a.ID == b.ID }
	if slices.EqualFunc(before, after, sameNode) {
		return
	}
	first := ""
	if len(after) > 0 {
		first = after[0].ID
	}
	s.log.Info("order changed", "first", first, "nodes", len(after))
}
