// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"nvpair/internal/procgroup"
)

// Process is one incarnation of a child's program.
type Process struct {
	Generation int    // counts the child's incarnations from 1
	Path       string // of the executable
	PID        int

	group  *procgroup.Group
	stdin  *os.File
	stdout *os.File
	stderr *os.File
	exited chan struct{} // closed when the leader has exited
	deaf   chan struct{} // closed when it turned out that the program reads no more
	once   sync.Once     // closes deaf
	live   liveness
}

// spawn starts cmd with fresh pipes as its standard streams.
func spawn(cmd *exec.Cmd, generation int) (*Process, error) {
	p := &Process{Generation: generation, Path: cmd.Path, exited: make(chan struct{}), deaf: make(chan struct{})}
	var theirs []*os.File
	defer func() { closeAll(theirs...) }()
	for _, pipe := range []struct {
		ours  **os.File
		child func(*os.File)
		write bool // we hold the writing end
	}{
		{&p.stdin, func(f *os.File) { cmd.Stdin = f }, true},
		{&p.stdout, func(f *os.File) { cmd.Stdout = f }, false},
		{&p.stderr, func(f *os.File) { cmd.Stderr = f }, false},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(p.stdin, p.stdout, p.stderr)
			return nil, err
		}
		ours, child := r, w
		if pipe.write {
			ours, child = w, r
		}
		*pipe.ours = ours
		pipe.child(child)
		theirs = append(theirs, child)
	}
	group, err := procgroup.Start(cmd)
	if err != nil {
		closeAll(p.stdin, p.stdout, p.stderr)
		return nil, err
	}
	p.group, p.PID = group, group.Pid()
	return p, nil
}

// Transport returns the program's standard streams as one stream: reads are its
// output, writes its input, and CloseWrite ends its input alone.
func (p *Process) Transport() io.ReadWriteCloser { return transport{p} }

type transport struct{ p *Process }

func (t transport) Read(b []byte) (int, error)          { return t.p.stdout.Read(b) }
func (t transport) CloseWrite() error                   { return t.p.stdin.Close() }
func (t transport) SetWriteDeadline(at time.Time) error { return t.p.stdin.SetWriteDeadline(at) }
func (t transport) Close() error                        { return errors.Join(t.p.stdin.Close(), t.p.stdout.Close()) }

// Write reports success for what a program did not want to read any more. A
// failed write ends a link, and with it the reading of what the program wrote
// last; it is the child's monitor that ends this one.
func (t transport) Write(b []byte) (int, error) {
	n, err := t.p.stdin.Write(b)
	if err == nil || errors.Is(err, os.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	t.p.once.Do(func() { close(t.p.deaf) })
	return len(b), nil
}

// Heard says that something arrived on the link.
func (p *Process) Heard() { p.live.heard.Store(true) }

// Announced says that the program promised to answer pings.
func (p *Process) Announced() { p.live.announced.Store(true) }

// Answered says that the program answered the ping with that number.
func (p *Process) Answered(seq int64) {
	if seq > 0 && seq <= p.live.seq.Load() {
		p.live.unanswered.Store(0)
	}
}

// liveness is what is known of a program's will to answer. The link's reader
// sets it, the child's monitor judges it.
type liveness struct {
	heard      atomic.Bool // since the last tick
	announced  atomic.Bool
	seq        atomic.Int64 // of the newest ping; written by the monitor
	unanswered atomic.Int64 // pings in a row
	silent     int          // ticks without an announcement; the monitor's own
}

// tick is called once a ping period. It returns the number of a ping to send, or
// 0, and why the program counts as hung, or "". ours tells whether a program
// that never announced itself should have; it may be slow.
func (l *liveness) tick(p Policy, ours func() bool) (ping int64, hung string) {
	heard := l.heard.Swap(false)
	if !l.announced.Load() {
		if l.silent++; l.silent == p.HelloTicks && ours() {
			return 0, "hung: it never said hello"
		}
		return 0, ""
	}
	missed := l.unanswered.Load()
	switch {
	case missed >= int64(p.PingMisses):
		return 0, fmt.Sprintf("hung: %d pings unanswered", missed)
	case heard:
		return 0, ""
	}
	l.unanswered.Add(1)
	return l.seq.Add(1), ""
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}
