// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// maxUnread is how much of a body that the handler left is read to keep the
// connection for another request.
const maxUnread = 256 << 10

// body is a request's body as the handler sees it. It may be read while the
// response is written, by another goroutine too.
type body struct {
	c      *conn
	w      *response
	req    *http.Request // the handler's
	parsed *http.Request // what net/http adds the trailers to
	src    io.Reader     // the body as net/http frames it; never closed, as that may read without end
	expect bool          // the client waits for "100 Continue"

	mu     sync.Mutex // guards the rest; held over a read, so that nothing overtakes it
	left   int64      // bytes to come, negative when the client did not say
	eof    bool
	cut    bool // the client left before all of the length it had announced
	closed bool
	early  bool // it was given up before its end
}

func (b *body) start(c *conn, x *exchange, parsed *http.Request) {
	b.c, b.w, b.req, b.parsed = c, &x.w, &x.req, parsed
	b.src, b.left = parsed.Body, parsed.ContentLength
	if parsed.ProtoAtLeast(1, 1) && hasToken(first(parsed.Header["Expect"]), "100-continue") {
		b.expect = true
		x.w.awaited.Store(true)
	}
}

func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	if b.w.awaited.Load() {
		b.w.sendContinue()
	}
	return b.readLocked(p)
}

func (b *body) readLocked(p []byte) (int, error) {
	if b.eof {
		return 0, io.EOF
	}
	n, err := b.src.Read(p)
	if b.left > 0 {
		b.left -= int64(n)
	}
	b.cut = b.cut || b.left >= 0 && errors.Is(err, io.ErrUnexpectedEOF)
	if errors.Is(err, io.EOF) {
		b.eof = true
		b.req.Trailer = b.parsed.Trailer
		b.c.watch()
	}
	return n, err
}

// Close gives up the body, after reading on for a bit.
func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	if b.eof {
		return nil
	}
	if b.left > maxUnread {
		b.early = true
		return nil // as if it had ended
	}
	_, err := io.CopyN(io.Discard, lockedBody{b}, maxUnread)
	b.early = !b.eof // what is still to come must not be read as a request
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}

// end closes the body of a request that has been answered, if there is one. A
// connection that ends with the answer needs no more of it.
func (b *body) end(closing bool) {
	if b.src == nil {
		return
	}
	if closing {
		_ = b.c.in.setDeadline(aLongTimeAgo) // somebody may still be reading, and hold the lock
		b.mu.Lock()
		b.early, b.closed = b.early || !b.eof, true
		b.mu.Unlock()
		return
	}
	_ = b.Close()
}

// lockedBody reads a body whose lock is held.
type lockedBody struct{ b *body }

func (l lockedBody) Read(p []byte) (int, error) { return l.b.readLocked(p) }

// drain reads what the handler left, before the answer: many clients read none
// before they have sent all. It reports whether the connection can be used on,
// and whether the answer should say that it cannot.
func (b *body) drain() (reusable, tooBig bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.src == nil, b.eof:
		return true, false
	case b.closed:
		return b.cut, false // whoever reads on sees that the client has left
	case b.left >= maxUnread:
		return false, true
	case b.cut:
		return true, false
	}
	_, err := io.CopyN(io.Discard, lockedBody{b}, maxUnread+1)
	if err == nil {
		return false, true
	}
	return errors.Is(err, io.EOF), false
}

// sawEnd reports whether the body was read to its end.
func (b *body) sawEnd() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.eof
}
