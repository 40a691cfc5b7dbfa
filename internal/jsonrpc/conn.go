// SPDX-License-Identifier: Apache-2.0

package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Defaults of Config.
const (
	DefaultMaxFrameBytes = 1 << 20 // WR-19
	DefaultMaxQueueBytes = 8 << 20
	DefaultMaxCalls      = 1024

	// flushGrace is how long a link that ends tries to write what is queued.
	flushGrace = time.Second
	// reportEvery limits what a broken or hostile peer can write into the log.
	reportEvery = time.Second
)

// Config is what a Conn needs from its owner. Only Handle is required.
type Config struct {
	// Handle takes every request and notification, in arrival order, on the
	// read loop. It must not block and must not wait for a call on the same
	// link; a request may be kept and answered later from any goroutine.
	Handle func(*Request)
	// Heard, if set, is called on the read loop for every line that arrives.
	Heard func()
	// Ended, if set, is called on the read loop when the input has ended. What
	// is queued before it returns is still written.
	Ended func()
	// MaxFrameBytes limits an inbound line without its newline; 0 is 1 MiB.
	MaxFrameBytes int
	// MaxQueueBytes bounds the out-queue; 0 is 8 MiB.
	MaxQueueBytes int
	// MaxCalls bounds the calls that wait for an answer; 0 is 1,024.
	MaxCalls int
	// WriteTimeout, if set and the transport has write deadlines, ends the
	// link when the peer takes no byte for that long.
	WriteTimeout time.Duration
	// RefuseInvalid answers a frame that has an id and a method but is no
	// valid request with -32600 (DEC-123); otherwise it is only skipped.
	RefuseInvalid bool
	// Log receives skipped frames and write errors; nil discards them.
	Log *slog.Logger
}

// Conn is one end of a link. Make it with New, serve it with Run. All methods
// may be called from any goroutine, also before Run and after its end.
type Conn struct {
	cfg   Config
	rwc   io.ReadWriteCloser
	out   *outQueue
	calls callTable

	malformed limiter
	long      limiter
	writeErr  limiter
	dropped   atomic.Int64
	torn      bool // the last byte written is not a newline; the writer's
}

// New returns a Conn over rwc, which it owns: Run closes it, and that must unblock
// a pending Read and Write, or Run does not return. Nothing is read or written
// before Run.
func New(rwc io.ReadWriteCloser, cfg Config) *Conn {
	if cfg.MaxFrameBytes == 0 {
		cfg.MaxFrameBytes = DefaultMaxFrameBytes
	}
	if cfg.MaxQueueBytes == 0 {
		cfg.MaxQueueBytes = DefaultMaxQueueBytes
	}
	if cfg.MaxCalls == 0 {
		cfg.MaxCalls = DefaultMaxCalls
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &Conn{cfg: cfg, rwc: rwc, out: newOutQueue(cfg.MaxQueueBytes)}
	c.calls.init(cfg.MaxCalls)
	return c
}

// Run serves the link until the peer ends it, ctx ends or a write fails for
// good, then fails all pending calls, writes out what is queued (a second at
// most), closes the transport and returns. The error is nil for an orderly end:
// end of input, ctx, or a transport that closed. A peer that let a WriteTimeout
// pass is os.ErrDeadlineExceeded.
func (c *Conn) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	var writeErr error
	wg.Go(func() {
		writeErr = c.writeLoop()
		_ = c.rwc.Close() // unblocks the read loop
	})
	stop := context.AfterFunc(ctx, c.end)
	err := c.readLoop()
	stopped := ctx.Err() != nil // whatever Ended does to ctx comes after the end
	c.calls.close()             // before Ended, which may wait for someone who waits for a call
	if c.cfg.Ended != nil {
		c.cfg.Ended()
	}
	stop()
	c.end()
	wg.Wait()
	if isOrderly(err) {
		err = writeErr // a link that closed because of it reads as closed
	}
	if isOrderly(err) || stopped {
		return nil
	}
	return err
}

// end lets the writer finish what is queued and stop, by force after flushGrace.
func (c *Conn) end() {
	if c.out.finish() {
		abort := time.AfterFunc(flushGrace, func() { _ = c.rwc.Close() })
		context.AfterFunc(c.out.done, func() { abort.Stop() })
	}
}

// CloseWrite writes out what is queued and then ends the outgoing half only:
// the peer sees end of input, and its last frames are still handled. A transport
// without CloseWrite is closed whole. It returns at once.
func (c *Conn) CloseWrite() { c.out.halfClose() }

// Dropped returns how many notifications the full out-queue has refused.
func (c *Conn) Dropped() int64 { return c.dropped.Load() }

func (c *Conn) readLoop() error {
	lines := newLineReader(c.rwc, c.cfg.MaxFrameBytes)
	for {
		c.out.awaitRoom()
		line, err := lines.next()
		switch {
		case errors.Is(err, errTooLong):
			c.heard()
			if n, ok := c.long.allow(); ok {
				c.cfg.Log.Warn("frame over the limit skipped", "limit", c.cfg.MaxFrameBytes, "frames", n)
			}
		case err != nil:
			return err
		default:
			c.heard()
			c.dispatch(line)
		}
	}
}

func (c *Conn) heard() {
	if c.cfg.Heard != nil {
		c.cfg.Heard()
	}
}

func (c *Conn) dispatch(line []byte) {
	f, err := parseFrame(line)
	if err == nil && f.Method == "" && f.hasMethod && f.invalidRequest() {
		err = errMethodType
	}
	switch {
	case err != nil:
		if n, ok := c.malformed.allow(); ok {
			c.cfg.Log.Warn("malformed frame skipped", "err", err, "frames", n)
		}
		if c.cfg.RefuseInvalid && f.invalidRequest() {
			c.respondError(f.ID, Errorf(CodeInvalidRequest, "invalid request"))
		}
	case f.Method != "":
		c.cfg.Handle(&Request{Method: f.Method, Params: f.Params, id: f.ID, conn: c})
	case f.ID != nil && (f.Result == nil) != (f.Error == nil):
		c.calls.answer(f.ID, Response{Result: f.Result, Error: f.Error})
	}
}

// writeLoop is the only writer. It takes everything that is queued at a time,
// so that many small frames cost one system call. Its error says why nothing
// more can be written.
func (c *Conn) writeLoop() error {
	defer c.out.stop()
	for {
		batch, ok := c.out.take()
		if len(batch) > 0 {
			if err := c.write(batch); err != nil {
				return err
			}
		}
		c.out.written()
		if !ok {
			if half, is := c.rwc.(interface{ CloseWrite() error }); is && c.out.onlyHalf() {
				_ = half.CloseWrite()
				<-c.out.finished
			}
			return nil
		}
	}
}

// write sends one batch and returns an error if the link ends with it. A full
// disk behind a redirected output does not end a worker; a reader that went away
// does (DEC-47).
func (c *Conn) write(batch []byte) error {
	if c.torn { // what follows must not continue the torn line
		batch = append([]byte{'\n'}, batch...)
	}
	n, err := c.send(batch)
	if n > 0 {
		c.torn = batch[n-1] != '\n'
	}
	if err == nil {
		return nil
	}
	if writes, ok := c.writeErr.allow(); ok && !isOrderly(err) {
		c.cfg.Log.Warn("link write failed", "err", err, "writes", writes)
	}
	if isPeerGone(err) {
		return err
	}
	return nil
}

// send writes b. A peer that takes something within each WriteTimeout is slow,
// not stuck.
func (c *Conn) send(b []byte) (sent int, err error) {
	d, timed := c.rwc.(interface{ SetWriteDeadline(time.Time) error })
	timed = timed && c.cfg.WriteTimeout > 0
	for {
		if timed {
			_ = d.SetWriteDeadline(time.Now().Add(c.cfg.WriteTimeout))
		}
		n, err := c.rwc.Write(b[sent:])
		sent += n
		if n == 0 || sent == len(b) || !timed || !errors.Is(err, os.ErrDeadlineExceeded) {
			return sent, err
		}
	}
}

// Request is a request or a notification of the peer.
type Request struct {
	Method string
	Params json.RawMessage // nil when absent

	id   json.RawMessage
	conn *Conn
	done atomic.Bool // answered
}

// IsNotification reports whether nobody waits for an answer.
func (r *Request) IsNotification() bool { return r.id == nil }

// Reply answers with result as JSON; nil is null. Only the first answer to a
// request is sent, and none to a notification.
func (r *Request) Reply(result any) {
	b, err := Marshal(result)
	if err != nil {
		r.Fail(Errorf(CodeInternal, "encode result: %v", err))
		return
	}
	r.reply("result", b)
}

// Fail answers with an error. An error that is not an *Error becomes -32000.
func (r *Request) Fail(err error) {
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Code: CodeFailed, Message: err.Error()}
	}
	b, mErr := Marshal(e)
	if mErr != nil { // only bad Data does not encode
		b, _ = Marshal(&Error{Code: e.Code, Message: e.Message})
	}
	r.reply("error", b)
}

// Relay answers with another link's response as it came. For a local failure
// the error's message is prefix, then the cause.
func (r *Request) Relay(resp Response, prefix string) {
	switch {
	case resp.Err != nil:
		r.Fail(Errorf(CodeFailed, "%s: %v", prefix, resp.Err))
	case resp.Error != nil:
		r.reply("error", resp.Error)
	default:
		r.reply("result", resp.Result)
	}
}

func (r *Request) reply(member string, value json.RawMessage) {
	if r.id != nil && r.done.CompareAndSwap(false, true) {
		r.conn.out.response(r.id, member, value)
	}
}

func (c *Conn) respondError(id json.RawMessage, e *Error) {
	(&Request{id: id, conn: c}).Fail(e)
}

// limiter lets one report through per reportEvery and counts what it stands
// for. It belongs to one goroutine.
type limiter struct {
	last  time.Time
	count int
}

func (l *limiter) allow() (count int, ok bool) {
	l.count++
	if now := time.Now(); l.last.IsZero() || now.Sub(l.last) >= reportEvery {
		count, l.count, l.last = l.count, 0, now
		return count, true
	}
	return 0, false
}
