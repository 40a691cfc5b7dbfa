// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"bufio"
	"context"
	"io"
	"math"
	"net"
	"sync"
	"time"
)

// Config says how a Pool connects. The zero value is usable.
type Config struct {
	// Dial opens a connection; nil is plain TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// DialTimeout bounds Dial; 0 is 10 s.
	DialTimeout time.Duration
	// IdleTimeout is how long an unused connection is kept; 0 is 4 s, below
	// the 5 s after which several engines close theirs.
	IdleTimeout time.Duration
	// MaxIdle bounds the kept connections to one address; 0 is 64.
	MaxIdle int
	// MaxHeadBytes bounds a response head; 0 is 1 MiB.
	MaxHeadBytes int64
}

// Pool holds connections that wait for their next request. Its methods may be
// called by any number of goroutines.
type Pool struct {
	cfg Config

	writers sync.Pool // of *bufio.Writer: most of a connection's time nothing is written

	mu     sync.Mutex         // guards the rest
	idle   map[string][]*conn // by address, the most recently used last
	sweep  *time.Timer        // armed while idle holds anything
	closed bool
}

// NewPool returns an empty pool. Close ends it.
func NewPool(cfg Config) *Pool {
	if cfg.Dial == nil {
		d := &net.Dialer{KeepAlive: 30 * time.Second}
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }
	}
	if cfg.DialTimeout == 0 {
		cfg.DialTimeout = 10 * time.Second
	}
	if cfg.IdleTimeout == 0 {
		cfg.IdleTimeout = 4 * time.Second
	}
	if cfg.MaxIdle == 0 {
		cfg.MaxIdle = 64
	}
	if cfg.MaxHeadBytes == 0 {
		cfg.MaxHeadBytes = 1 << 20
	}
	return &Pool{cfg: cfg, idle: make(map[string][]*conn)}
}

// conn is one connection. It belongs to one request at a time.
type conn struct {
	net.Conn
	addr  string
	limit *io.LimitedReader // under br, bounds the head
	br    *bufio.Reader
	bw    *bufio.Writer // lent by Pool.writers while a request is written
	since time.Time     // when it became idle
}

func newConn(nc net.Conn, addr string) *conn {
	c := &conn{Conn: nc, addr: addr, limit: &io.LimitedReader{R: nc, N: math.MaxInt64}}
	c.br = bufio.NewReaderSize(c.limit, 4<<10)
	return c
}

// take returns a connection to addr, a kept one if there is a usable one.
func (p *Pool) take(ctx context.Context, addr string, fresh bool) (c *conn, reused bool, err error) {
	for !fresh {
		c := p.pop(addr)
		if c == nil {
			break
		}
		if time.Since(c.since) < p.cfg.IdleTimeout && c.br.Buffered() == 0 && !closedByPeer(c.Conn) {
			return c, true, nil
		}
		_ = c.Close()
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.DialTimeout)
	defer cancel()
	nc, err := p.cfg.Dial(ctx, addr)
	if err != nil {
		return nil, false, err
	}
	return newConn(nc, addr), false, nil
}

func (p *Pool) pop(addr string) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.idle[addr]
	if len(list) == 0 {
		return nil
	}
	c := list[len(list)-1]
	list[len(list)-1] = nil
	p.idle[addr] = list[:len(list)-1]
	return c
}

// put keeps a connection for the next request, or closes it.
func (p *Pool) put(c *conn) {
	c.since = time.Now()
	p.mu.Lock()
	keep := !p.closed && len(p.idle[c.addr]) < p.cfg.MaxIdle
	if keep {
		p.idle[c.addr] = append(p.idle[c.addr], c)
		if p.sweep == nil {
			p.sweep = time.AfterFunc(p.cfg.IdleTimeout, p.expire)
		}
	}
	p.mu.Unlock()
	if !keep {
		_ = c.Close()
	}
}

// expire closes what has been idle too long, and runs again while anything is.
func (p *Pool) expire() {
	var old []*conn
	p.mu.Lock()
	for addr, list := range p.idle {
		n := 0 // the oldest come first
		for n < len(list) && time.Since(list[n].since) >= p.cfg.IdleTimeout {
			n++
		}
		old = append(old, list[:n]...)
		if n == len(list) {
			delete(p.idle, addr)
		} else {
			p.idle[addr] = append([]*conn(nil), list[n:]...)
		}
	}
	p.sweep = nil
	if len(p.idle) > 0 && !p.closed {
		p.sweep = time.AfterFunc(p.cfg.IdleTimeout, p.expire)
	}
	p.mu.Unlock()
	for _, c := range old {
		_ = c.Close()
	}
}

// Drop closes the idle connections to an address that failed.
func (p *Pool) Drop(addr string) {
	p.mu.Lock()
	list := p.idle[addr]
	delete(p.idle, addr)
	p.mu.Unlock()
	for _, c := range list {
		_ = c.Close()
	}
}

// Close closes all idle connections; those in use are closed when their response
// is.
func (p *Pool) Close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = make(map[string][]*conn), true
	if p.sweep != nil {
		p.sweep.Stop()
	}
	p.mu.Unlock()
	for _, list := range idle {
		for _, c := range list {
			_ = c.Close()
		}
	}
}
