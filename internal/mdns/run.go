// SPDX-License-Identifier: Apache-2.0

package mdns

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	// reopenAfter is the wait before a receiving socket that failed is opened again.
	reopenAfter = time.Second
	// listenAgainAfter is the wait after one that could not be opened.
	listenAgainAfter = 10 * time.Second
)

// run is the state of one Run. Its loop's goroutine owns it.
type run struct {
	*Conn

	entries  []*entry // what is published, in the callers' order
	browsers []*Browser
	links    []*link

	pollAt    time.Time // of the next look at the interfaces; zero if changes are told
	refreshAt time.Time // of the look that counts; zero while nothing has changed
	reopenAt  time.Time // of the next attempt to open the socket; zero while it is open
	mute      bool      // the last packet left on no link, and that was logged
	deaf      bool      // the socket could not be opened, and that was logged

	listener Listener      // nil while there is none
	packets  chan received // unbuffered: see receive
	broken   chan error    // why the listener ended
	readers  sync.WaitGroup
	closed   chan struct{} // closed with the listener
}

// received is a packet. Its bytes are valid until the next one is received.
type received struct {
	bytes  []byte
	origin Origin
}

func newRun(c *Conn) *run {
	return &run{Conn: c, packets: make(chan received), broken: make(chan error)}
}

func (r *run) loop(ctx context.Context) {
	r.start(time.Now())
	defer r.end()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
			r.reconcile(time.Now())
		case p := <-r.packets:
			r.handle(p.bytes, p.origin, time.Now())
		case err := <-r.broken:
			r.note("receiving socket failed", err)
			r.closeListener()
			r.reopenAt = time.Now().Add(reopenAfter)
		case <-timer.C:
		}
		now := time.Now()
		r.step(now)
		if next := r.next(); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(next.Sub(now))
		}
	}
}

// note logs an error that passes.
func (r *run) note(msg string, err error) { r.cfg.Log.Debug(msg, "err", err) }

// start looks the interfaces up for the first time, which needs no settling.
func (r *run) start(now time.Time) {
	r.refresh(now)
	r.openListener(now)
	r.reconcile(now)
}

// end says goodbye (DI-41) and closes the socket.
func (r *run) end() {
	r.reconcileWithdrawn(nil)
	r.closeListener()
	r.show(nil)
}

// step does all that is due.
func (r *run) step(now time.Time) {
	if !r.reopenAt.IsZero() && !now.Before(r.reopenAt) {
		r.openListener(now)
	}
	if !r.pollAt.IsZero() && !now.Before(r.pollAt) {
		r.poll(now)
	}
	if !r.refreshAt.IsZero() && !now.Before(r.refreshAt) {
		r.refresh(now)
	}
	for _, e := range r.entries {
		r.announceDue(e, now)
	}
	for _, l := range r.links {
		r.answerDue(l, now)
	}
}

// next returns when step has something to do; zero is never.
func (r *run) next() time.Time {
	next := r.pollAt
	earlier := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	earlier(r.refreshAt)
	earlier(r.reopenAt)
	for _, e := range r.entries {
		e.times(earlier)
	}
	for _, l := range r.links {
		for e, p := range l.pending {
			earlier(l.readyAt(e, p))
		}
	}
	return next
}

// reconcile takes over what callers want.
func (r *run) reconcile(now time.Time) {
	w := r.take()
	if w.networkChanged && r.refreshAt.IsZero() {
		r.refreshAt = now.Add(max(0, r.cfg.Debounce))
	}
	r.browsers = w.browsers
	r.reconcileWithdrawn(w.publications)
	for _, p := range w.order {
		i := slices.IndexFunc(r.entries, func(e *entry) bool { return e.publication == p })
		if i < 0 {
			r.entries = append(r.entries, newEntry(p, w.publications[p], now))
		} else if e := r.entries[i]; e.records != w.publications[p] {
			e.records = w.publications[p]
			e.changed(now)
		}
	}
	for _, serviceType := range w.queries {
		r.query(serviceType, now)
	}
	for _, l := range r.links {
		l.forgetQuestions(r.browsers)
	}
}

// reconcileWithdrawn says goodbye for what is not wanted any more.
func (r *run) reconcileWithdrawn(wanted map[*Publication]*records) {
	r.entries = slices.DeleteFunc(r.entries, func(e *entry) bool {
		if wanted[e.publication] != nil {
			return false
		}
		r.sendAll(goodbye(e.records))
		for _, l := range r.links {
			l.forget(e)
		}
		return true
	})
}

// openListener opens the receiving socket and starts to read from it. A failure is
// retried; the first in a row is logged as a warning.
func (r *run) openListener(now time.Time) {
	r.reopenAt = time.Time{}
	listener, err := r.cfg.Network.Listen()
	if err != nil {
		if !r.deaf {
			r.cfg.Log.Warn("multicast cannot be received", "err", err)
		}
		r.deaf = true
		r.reopenAt = now.Add(listenAgainAfter)
		return
	}
	r.deaf = false
	r.listener, r.closed = listener, make(chan struct{})
	r.join()
	closed := r.closed
	r.readers.Go(func() { r.receive(listener, closed) })
}

// receive hands over what arrives until the socket is closed or fails. It reads
// into two buffers in turn: once the loop has taken one, it has done with the other.
func (r *run) receive(listener Listener, closed <-chan struct{}) {
	var buffers [2][maxPacketBytes + 1]byte // one more shows what is too large
	for i := 0; ; i = 1 - i {
		n, origin, err := listener.Read(buffers[i][:])
		if err != nil {
			select {
			case r.broken <- err:
			case <-closed:
			}
			return
		}
		select {
		case r.packets <- received{buffers[i][:n], origin}:
		case <-closed:
			return
		}
	}
}

func (r *run) closeListener() {
	if r.listener == nil {
		return
	}
	close(r.closed)
	if err := r.listener.Close(); err != nil {
		r.note("receiving socket not closed", err)
	}
	r.readers.Wait()
	r.listener = nil
}

// join joins the group on every link. Linux joins 20 groups a socket unless told
// otherwise, so that on a machine with more interfaces the rest is deaf.
func (r *run) join() {
	if r.listener == nil {
		return
	}
	for _, l := range r.links {
		err := r.listener.Join(l.Interface)
		full := errors.Is(err, syscall.ENOBUFS)
		switch {
		case full && !l.refused:
			r.cfg.Log.Warn("nothing is heard on an interface, the system joins no more groups: "+
				"raise net.ipv4.igmp_max_memberships or name the interfaces with --interfaces", "interface", l.Name, "err", err)
		case err != nil:
			r.cfg.Log.Debug("group not joined", "interface", l.Name, "err", err)
		}
		l.refused = full
	}
}
