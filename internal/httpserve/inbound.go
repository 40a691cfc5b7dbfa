// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"io"
	"net"
	"sync"
	"time"
)

// inbound is what a connection's bufio.Reader reads: the connection, with a bound
// while a head is read, and with a watch over the client while a handler runs.
type inbound struct {
	nc   net.Conn
	left func() // called when a read fails: the client has left

	// The goroutine that parses a head has these to itself.
	bounded bool
	room    int64  // bytes that may still be read, if bounded
	seen    []byte // a copy of what is read, if bounded

	mu       sync.Mutex // guards the rest; a deadline may be set under it, which does not block
	deadline time.Time  // of reads, as last set; zero is none
	stale    bool       // deadline was not meant for what is read now
	ahead    [1]byte    // read ahead, if hasAhead
	hasAhead bool
	since    uint64 // one more than the tick at which the wait for the client's leaving began, or 0
	reading  bool   // by the watcher
	stopping bool   // the watcher is being stopped
	stopped  sync.Cond
}

// aLongTimeAgo as a deadline makes a read that blocks return.
var aLongTimeAgo = time.Unix(1, 0)

// Read takes what was read ahead first.
func (in *inbound) Read(p []byte) (int, error) {
	if in.bounded {
		if in.room <= 0 {
			return 0, io.EOF
		}
		p = p[:min(int64(len(p)), in.room)]
	}
	in.mu.Lock()
	if in.reading {
		in.mu.Unlock()
		panic("httpserve: the body is read after its end")
	}
	if in.hasAhead && len(p) > 0 {
		p[0], in.hasAhead = in.ahead[0], false
		in.mu.Unlock()
		in.count(p[:1])
		return 1, nil
	}
	in.freshenLocked()
	in.mu.Unlock()
	n, err := in.nc.Read(p)
	in.count(p[:n])
	if err != nil {
		in.left()
	}
	return n, err
}

func (in *inbound) count(b []byte) {
	if in.bounded {
		in.room -= int64(len(b))
		in.seen = append(in.seen, b...)
	}
}

// freshenLocked removes a deadline that is left from before.
func (in *inbound) freshenLocked() {
	if in.stale {
		in.stale, in.deadline = false, time.Time{}
		_ = in.nc.SetReadDeadline(in.deadline)
	}
}

// setDeadline is for reads from now on.
func (in *inbound) setDeadline(t time.Time) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.stale, in.deadline = false, t
	return in.nc.SetReadDeadline(t)
}

// setDeadlineAbout is setDeadline(now+d), at least d/2 away, for which in a busy
// connection a deadline that was set before does.
func (in *inbound) setDeadlineAbout(now time.Time, d time.Duration) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.stale = false
	if left := in.deadline.Sub(now); left >= d/2 && left <= d {
		return
	}
	in.deadline = now.Add(d)
	_ = in.nc.SetReadDeadline(in.deadline)
}

// outdate says that the deadline is not meant for what comes next. Nothing is
// done about it before a read that might block.
func (in *inbound) outdate() {
	in.mu.Lock()
	in.stale = !in.deadline.IsZero()
	in.mu.Unlock()
}

// giveBack has the next Read begin with a byte that was read elsewhere.
func (in *inbound) giveBack(b byte) {
	in.mu.Lock()
	in.ahead[0], in.hasAhead = b, true
	in.mu.Unlock()
}
