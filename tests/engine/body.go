// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"io"
	"net/http/httputil"
	"time"
)

// maxBody is the longest body that is taken in; llama.cpp has the same limit.
const maxBody = 100 << 20

// keptBody is the largest body buffer a connection keeps for its next request.
const keptBody = 1 << 20

// errTooLong means a body over maxBody.
var errTooLong = errors.New("body too long")

// takeBody reads the whole body into x.body. It returns errTooLong for one that
// is not wanted; for any other error x.err is set.
func (x *exchange) takeBody() error {
	if x.length > maxBody {
		return errTooLong
	}
	x.body = x.body[:0]
	r := x.bodyReader()
	if x.length > int64(cap(x.body)) {
		x.body = make([]byte, 0, min(x.length, keptBody))
	}
	for {
		if len(x.body) == cap(x.body) {
			x.body = append(x.body, 0)[:len(x.body)]
		}
		n, err := r.Read(x.body[len(x.body):cap(x.body)])
		x.body = x.body[:len(x.body)+n]
		if len(x.body) > maxBody {
			return errTooLong
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			x.left(err)
			return err
		}
	}
}

// bodyReader returns the body as it arrives, and asks the client for it if that
// waits to be asked. What is read is witnessed.
func (x *exchange) bodyReader() io.Reader {
	x.c.unwatch()
	if x.expect && x.length != 0 && x.c.br.Buffered() == 0 && x.plan.find(KindExpectIgnored) == nil {
		x.raise(x.c.nc.Write([]byte("HTTP/1.1 100 Continue\r\n\r\n")))
	}
	r := &x.reader
	*r = bodyReader{x: x, rest: x.length, hash: r.hash, slow: x.plan.find(KindSlowRead)}
	r.hash.Reset()
	if x.length < 0 {
		r.chunked = httputil.NewChunkedReader(x.c.br)
	}
	return r
}

// raise takes the result of a write that is none of the answer's.
func (x *exchange) raise(_ int, err error) {
	if err != nil {
		x.left(err)
	}
}

// bodyReader is one body. It ends with io.EOF once the whole body was read, and
// leaves the connection's reader at what follows.
type bodyReader struct {
	x       *exchange
	rest    int64
	chunked io.Reader
	hash    hasher
	read    int64
	slow    *fault
}

func (r *bodyReader) Read(p []byte) (int, error) {
	if r.x.bodyDone {
		return 0, io.EOF
	}
	if r.slow != nil {
		r.x.sleep(max(r.slow.duration(), time.Millisecond))
		r.x.c.unwatch()
		p = p[:min(len(p), max(r.slow.Bytes, 1))]
		if r.x.err != nil {
			return 0, r.x.err
		}
	}
	var n int
	var err error
	if r.chunked != nil {
		n, err = r.chunked.Read(p)
		if errors.Is(err, io.EOF) {
			err = r.trailer()
		}
	} else {
		if int64(len(p)) > r.rest {
			p = p[:r.rest]
		}
		if len(p) > 0 {
			n, err = r.x.c.br.Read(p)
		}
		if r.rest -= int64(n); r.rest == 0 {
			err = io.EOF
		} else if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
	}
	if n > 0 {
		r.hash.Write(p[:n])
		r.read += int64(n)
	}
	if errors.Is(err, io.EOF) {
		r.x.bodyDone = true
	}
	if err != nil {
		r.x.rec.body(r.x.e.witness, r.read, r.hash.Sum(), r.x.bodyDone)
	}
	return n, err
}

// trailer reads what follows the last chunk, up to its blank line.
func (r *bodyReader) trailer() error {
	for {
		line, err := r.x.c.br.ReadSlice('\n')
		if err != nil {
			return io.ErrUnexpectedEOF
		}
		if len(line) <= 2 {
			return io.EOF
		}
	}
}

// skipBody reads the body for its length and hash alone.
func (x *exchange) skipBody() {
	if x.bodyDone || x.err != nil {
		return
	}
	if _, err := io.Copy(io.Discard, x.bodyReader()); err != nil && x.err == nil {
		x.left(err)
	}
}
