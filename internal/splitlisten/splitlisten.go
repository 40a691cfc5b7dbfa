// SPDX-License-Identifier: Apache-2.0

// Package splitlisten shares one TCP listener between a TLS and a plaintext
// server: the first byte of a connection decides (0x16 starts a TLS handshake),
// and is given back (SEC-21).
//
// A connection that sends nothing, or that its server does not take, is closed
// after five seconds and delays nobody. Only so many are kept; beyond that a new
// one never waits, but the one gives way that has been silent, or not taken,
// longest: of its own address or IPv6 subnet when that has many, else of all.
// Those over loopback have places of their own, and do not give way to others.
//
// Errors of Accept that pass are waited out; a lasting one closes both sides, as
// Close does, after which no connection is handed over.
package splitlisten

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

const (
	tlsHandshake = 0x16

	// patience is how long a connection may take to send its first byte, and
	// again how long its server may take to accept it.
	patience = 5 * time.Second

	firstBackoff = 5 * time.Millisecond
	maxBackoff   = time.Second
)

// Listener is a listener in two. Serve must run for either side to accept.
type Listener struct {
	base  net.Listener
	tls   *side
	plain *side

	local, strangers *crowd // the connections that are not handed over

	closed context.Context
	close  context.CancelFunc
	once   sync.Once // closes base
	conns  sync.WaitGroup
}

// New splits ln, which it owns.
func New(ln net.Listener) *Listener {
	l := &Listener{
		base:      ln,
		local:     newCrowd(maxLocal, maxLocal),
		strangers: newCrowd(maxStrangers, maxPerSource),
	}
	l.closed, l.close = context.WithCancel(context.Background())
	l.tls, l.plain = &side{l, make(chan net.Conn)}, &side{l, make(chan net.Conn)}
	return l
}

// TLS is the side of connections that start a TLS handshake. Closing it closes
// the whole listener.
func (l *Listener) TLS() net.Listener { return l.tls }

// Plain is the side of all others.
func (l *Listener) Plain() net.Listener { return l.plain }

// Close ends both sides. Connections that were handed over live on.
func (l *Listener) Close() error {
	var err error
	l.once.Do(func() {
		l.close()
		err = l.base.Close()
	})
	return err
}

// Serve accepts until the listener is closed, and returns after every undecided
// connection is closed. The error is that of an Accept that cannot go on.
func (l *Listener) Serve() error {
	defer l.conns.Wait()
	defer func() { _ = l.Close() }()
	backoff := firstBackoff
	for {
		conn, err := l.base.Accept()
		switch {
		case err == nil:
			backoff = firstBackoff
			l.admit(conn)
		case l.isClosed():
			return nil
		case !isTemporary(err):
			return err
		default:
			if !l.pause(backoff) {
				return nil
			}
			backoff = min(2*backoff, maxBackoff)
		}
	}
}

// admit lets a connection decide. It never blocks (SEC-21).
func (l *Listener) admit(conn net.Conn) {
	from, local := sourceOf(conn)
	in := l.strangers
	if local {
		in = l.local
	}
	stay, leave := context.WithCancel(l.closed)
	g := &guest{leave: leave, from: from}
	in.add(g)
	l.conns.Go(func() {
		defer leave()
		defer in.remove(g)
		l.decide(stay, conn, func() { in.renew(g) })
	})
}

// decide reads the first byte, calls decided and hands the connection over, unless
// stay ends before.
func (l *Listener) decide(stay context.Context, conn net.Conn, decided func()) {
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	// The end of stay ends a read that waits for a silent peer, but must not
	// touch a connection that has been handed over.
	unwatch := context.AfterFunc(stay, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	var first [1]byte
	n, err := conn.Read(first[:])
	if !unwatch() || n == 0 || err != nil {
		_ = conn.Close()
		return
	}
	decided()
	to := l.plain
	if first[0] == tlsHandshake {
		to = l.tls
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	_ = conn.SetReadDeadline(time.Time{})
	select {
	case to.conns <- &prefixed{Conn: conn, first: first[0], pending: true}:
	case <-timer.C:
		_ = conn.Close()
	case <-stay.Done():
		_ = conn.Close()
	}
}

func (l *Listener) isClosed() bool { return l.closed.Err() != nil }

func (l *Listener) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.closed.Done():
		return false
	}
}

// isTemporary reports whether Accept may work again: a connection that was
// aborted before it was accepted, or a lack of descriptors or memory.
func isTemporary(err error) bool {
	return errors.Is(err, syscall.ECONNABORTED) || errors.Is(err, syscall.EMFILE) ||
		errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}

// side is one half of a Listener.
type side struct {
	l     *Listener
	conns chan net.Conn
}

func (s *side) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		if s.l.isClosed() { // after Close nothing is handed over, even if both were ready
			_ = c.Close()
			return nil, net.ErrClosed
		}
		return c, nil
	case <-s.l.closed.Done():
		return nil, net.ErrClosed
	}
}

func (s *side) Close() error   { return s.l.Close() }
func (s *side) Addr() net.Addr { return s.l.base.Addr() }

// prefixed is a connection whose first byte was read ahead. Reads belong to one
// goroutine at a time, as those of net/http's server do.
type prefixed struct {
	net.Conn
	first   byte
	pending bool
}

func (c *prefixed) Read(b []byte) (int, error) {
	if !c.pending || len(b) == 0 {
		return c.Conn.Read(b)
	}
	c.pending = false
	b[0] = c.first
	return 1, nil
}

// CloseWrite ends the half towards the peer, as net/http's server does so that a
// client which is still sending can read its answer.
func (c *prefixed) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// NetConn is the connection below.
func (c *prefixed) NetConn() net.Conn { return c.Conn }
