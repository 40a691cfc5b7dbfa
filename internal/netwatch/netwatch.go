// SPDX-License-Identifier: Apache-2.0

// Package netwatch tells when the addresses of this machine change.
//
// It guarantees that after every change that lasts the caller hears of it: within
// 100 ms if it had been quiet, else within 1.5 s of the look before, where the
// system tells of changes (Linux, Windows, macOS and the BSDs), and within 10 s where
// it does not. The system's word is taken for a hint only. After a hint, and once in
// a minute behind it, the addresses are read, and nothing is told unless they differ
// from those read before. So a burst of hints, or a network that flaps, costs one
// look in 1.5 s, and an address that goes and returns between two looks is no change.
//
// A source of hints that fails is opened again after 10 s; until then the addresses
// are read every 10 s. What was lost in between is found by the look that follows.
//
// What is compared are the addresses of interfaces that are up, each with the length
// of its subnet and its interface's name, index and kind. Their order does not count.
package netwatch

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Times of DI-107.
const (
	settleAfter   = 100 * time.Millisecond  // a change comes as several hints
	lookEvery     = 1500 * time.Millisecond // at most
	pollEvery     = 10 * time.Second        // without hints
	safePollEvery = time.Minute             // behind hints
)

// Config says what is watched. The zero value is this machine.
type Config struct {
	// Addresses reads what there is; nil asks the system.
	Addresses func() ([]Address, error)
	// Open opens the source of hints; nil is the system's. An error means that
	// there is none for now.
	Open func() (Source, error)
	// Log gets outages, at DEBUG. Nil discards it.
	Log *slog.Logger
}

// Source tells that something about the addresses may have changed. Wait is called
// by one goroutine.
type Source interface {
	// Wait returns nil after a hint and an error when no more will come.
	Wait() error
	// Close ends a Wait that waits. It is called once.
	Close() error
}

// Address is one of an interface that is up.
type Address struct {
	Interface string // name
	Index     int
	Kind      net.Flags // FlagLoopback, FlagPointToPoint and FlagMulticast
	Prefix    netip.Prefix
}

// Run calls changed after every change until ctx ends, and returns after all that it
// started has ended. The first call comes at once, when nothing can be missed any
// more: what the caller read before may be out of date. All calls come from Run's
// goroutine, one after another; changes during a call cause one more.
func Run(ctx context.Context, cfg Config, changed func()) {
	if cfg.Addresses == nil {
		cfg.Addresses = systemAddresses
	}
	if cfg.Open == nil {
		cfg.Open = newSystem().open
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	w := &watch{Config: cfg, changed: changed, hints: make(chan struct{}, 1), broken: make(chan error)}
	w.loop(ctx)
}

// watch is the state of one Run. Its loop's goroutine owns it.
type watch struct {
	Config
	changed func()

	known  map[Address]bool // as last read
	looked time.Time        // when that was tried
	lookAt time.Time        // of the next look
	openAt time.Time        // of the next try to open the source; zero while it is open

	source Source
	closed chan struct{} // closed with source
	reader sync.WaitGroup
	hints  chan struct{} // capacity 1: one mark stands for any number of hints
	broken chan error    // why the source ended
}

func (w *watch) loop(ctx context.Context) {
	w.open()
	defer w.close()
	w.look()
	w.changed()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(time.Until(w.next()))
		select {
		case <-ctx.Done():
			return
		case <-w.hints:
			w.hinted()
		case err := <-w.broken:
			w.Log.Debug("no word of network changes any more", "err", err)
			w.close()
			w.openAt = time.Now().Add(pollEvery)
			w.hinted() // this may have been lost with it
		case <-timer.C:
			w.step()
		}
	}
}

// next is when step has something to do.
func (w *watch) next() time.Time {
	if w.openAt.IsZero() || w.lookAt.Before(w.openAt) {
		return w.lookAt
	}
	return w.openAt
}

// step does what is due.
func (w *watch) step() {
	now := time.Now()
	if !w.openAt.IsZero() && !now.Before(w.openAt) {
		w.open()
		w.lookAt = now // whatever happened before it was open
	}
	if !now.Before(w.lookAt) && w.look() {
		w.changed()
	}
}

// hinted plans a look: soon after a quiet time, else when the last one is old enough.
func (w *watch) hinted() {
	at := time.Now().Add(settleAfter)
	if earliest := w.looked.Add(lookEvery); at.Before(earliest) {
		at = earliest
	}
	if at.Before(w.lookAt) {
		w.lookAt = at
	}
}

// look reads the addresses, plans the next look, and reports whether they differ
// from those known. An error leaves those as they are.
func (w *watch) look() (differs bool) {
	w.looked = time.Now()
	w.lookAt = w.looked.Add(safePollEvery)
	if w.source == nil {
		w.lookAt = w.looked.Add(pollEvery)
	}
	list, err := w.Addresses()
	if err != nil {
		w.Log.Debug("addresses not read", "err", err)
		w.lookAt = w.looked.Add(pollEvery)
		return false
	}
	now := make(map[Address]bool, len(list))
	for _, a := range list {
		now[a] = true
	}
	differs = !maps.Equal(now, w.known)
	w.known = now
	return differs
}

// open opens the source and starts to wait for its hints.
func (w *watch) open() {
	source, err := w.Open()
	if err != nil {
		w.Log.Debug("no word of network changes", "err", err)
		w.openAt = time.Now().Add(pollEvery)
		return
	}
	w.openAt = time.Time{}
	w.source, w.closed = source, make(chan struct{})
	closed := w.closed
	w.reader.Go(func() { w.wait(source, closed) })
}

// wait passes hints on until the source ends.
func (w *watch) wait(source Source, closed <-chan struct{}) {
	for {
		if err := source.Wait(); err != nil {
			select {
			case w.broken <- err:
			case <-closed:
			}
			return
		}
		select {
		case w.hints <- struct{}{}:
		default: // a mark is there already
		}
	}
}

func (w *watch) close() {
	if w.source == nil {
		return
	}
	close(w.closed)
	if err := w.source.Close(); err != nil {
		w.Log.Debug("source of network changes not closed", "err", err)
	}
	w.reader.Wait()
	w.source = nil
}

// systemAddresses reads this machine's.
func systemAddresses() ([]Address, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var list []Address
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue // it went away meanwhile
		}
		for _, a := range addrs {
			prefix, err := netip.ParsePrefix(a.String())
			if err != nil {
				continue // Windows lists anycast addresses too
			}
			kind := i.Flags & (net.FlagLoopback | net.FlagPointToPoint | net.FlagMulticast)
			list = append(list, Address{Interface: i.Name, Index: i.Index, Kind: kind, Prefix: prefix})
		}
	}
	return list, nil
}
