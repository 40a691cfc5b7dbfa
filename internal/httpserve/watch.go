// SPDX-License-Identifier: Apache-2.0

package httpserve

import "time"

// lookEvery is how often the server looks for requests that have been running for
// at least as long. Those get a watcher, so it takes up to twice this time until a
// client's leaving is noticed. Most requests end sooner and cost no goroutine; a
// timer for each would wake a second thread as a goroutine does.
const lookEvery = 20 * time.Millisecond

// watch says that nothing more of the request is to be read, so that a read can
// only tell that the client has left, or read the next request's first byte.
func (c *conn) watch() {
	c.in.mu.Lock()
	if c.in.since == 0 {
		c.in.since = c.s.tick.Load() + 1
	}
	c.in.mu.Unlock()
	c.s.lookSoon()
}

// unwatch ends what watch began, and returns once nobody else reads.
func (in *inbound) unwatch() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.since = 0
	if !in.reading {
		return
	}
	in.stopping = true
	in.deadline, in.stale = aLongTimeAgo, true
	_ = in.nc.SetReadDeadline(aLongTimeAgo)
	for in.reading {
		in.stopped.Wait()
	}
	in.stopping = false
}

// lookSoon has the running requests looked at, unless that is about to happen.
func (s *Server) lookSoon() {
	if s.looking.Load() || !s.looking.CompareAndSwap(false, true) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.looker == nil {
		s.looker = time.AfterFunc(lookEvery, s.look)
		return
	}
	s.looker.Reset(lookEvery)
}

// look starts the watchers that are due. It runs again as long as requests may
// need one, and never on an idle server.
func (s *Server) look() {
	now := s.tick.Add(1)
	if !s.startWatchers(now) {
		s.looking.Store(false)
		// A request that began before the line above relied on this look.
		if !s.startWatchers(now) || !s.looking.CompareAndSwap(false, true) {
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looker.Reset(lookEvery)
}

// startWatchers reports whether a request waits for its watcher.
func (s *Server) startWatchers(now uint64) (more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if c.in.startWatcher(now) {
			more = true
		}
	}
	return more
}

// startWatcher starts the watcher if it is due, and reports whether it will be.
func (in *inbound) startWatcher(now uint64) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.since == 0 || in.reading || in.hasAhead:
		return false
	case now <= in.since: // not yet for a whole interval
		return true
	}
	in.reading = true
	in.freshenLocked()
	go in.await() // unwatch waits for it
	return false
}

// await reads until the client leaves, the next request begins, or unwatch.
func (in *inbound) await() {
	n, err := in.nc.Read(in.ahead[:])
	in.mu.Lock()
	in.hasAhead = n == 1
	gone := err != nil && !in.stopping
	in.mu.Unlock()
	if gone {
		in.left() // before unwatch can return: it must not meet the next request
	}
	in.mu.Lock()
	in.reading = false
	if n == 0 {
		in.since = 0 // whoever reads next learns it
	}
	in.mu.Unlock()
	in.stopped.Broadcast()
}
