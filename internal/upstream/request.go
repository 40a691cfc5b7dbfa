// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Request is one request. Headers that belong to one connection (RFC 9110
// section 7.6.1), Host and Content-Length must not be in Header.
type Request struct {
	Addr   string // host:port to connect to
	Method string
	Target string // request target, as it goes on the wire
	Host   string
	Header http.Header

	// Body is sent with its length and can be sent again. A request without a
	// body has none; then Stream, if set, is sent instead, once and on a fresh
	// connection: with Length, or chunked if that is negative.
	Body   []byte
	Stream io.Reader
	Length int64

	// Upgrade is the value of the Upgrade header of a protocol switch.
	Upgrade string
}

// Response is a response whose Body must be closed. Reading it to the end lets
// the connection be used again.
type Response struct {
	*http.Response

	conn *conn
	pool *Pool
	stop func() bool // ends the watch over the request's context
	body io.ReadCloser
	done bool // the body was read to its end
}

var (
	// ErrHeadTooLong means that a response head exceeds the pool's bound.
	ErrHeadTooLong = errors.New("response head is too long")
	// ErrBody means that a request's Stream failed or was shorter than its
	// Length: the server has a part of a request and is not waited for.
	ErrBody = errors.New("request body ended early")

	errUnasked   = errors.New("server switched to a protocol that nobody asked for")
	errMalformed = errors.New("request would not be one request on the wire")
)

// NotConnectedError means that no connection was made: nothing of the request was
// used up. Its text is the cause's.
type NotConnectedError struct{ Err error }

func (e *NotConnectedError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *NotConnectedError) Unwrap() error { return e.Err }

// aLongTimeAgo as a deadline makes everything that blocks return.
var aLongTimeAgo = time.Unix(1, 0)

// Do sends a request and returns when the head of its response has arrived. ctx
// covers the request and the reading of the body. The error is the context's if
// that ended.
func (p *Pool) Do(ctx context.Context, req *Request) (*Response, error) {
	if !req.wellFormed() {
		return nil, errMalformed
	}
	resp, reused, err := p.attempt(ctx, req, req.Stream != nil)
	if err != nil && reused && ctx.Err() == nil && errors.Is(err, errNoByte) {
		resp, _, err = p.attempt(ctx, req, true)
	}
	var dialing *NotConnectedError
	switch {
	case err == nil || ctx.Err() == nil:
		return resp, err
	case errors.As(err, &dialing):
		return nil, &NotConnectedError{ctx.Err()}
	}
	return nil, ctx.Err()
}

// wellFormed reports whether nothing in the head can end a line or the target: a
// request that the caller built of foreign text must stay one request.
func (r *Request) wellFormed() bool {
	if strings.ContainsAny(r.Target, " \r\n") || r.Target == "" || broken(r.Method) || broken(r.Host) || broken(r.Upgrade) {
		return false
	}
	for name, values := range r.Header {
		if broken(name) || slices.ContainsFunc(values, broken) {
			return false
		}
	}
	return true
}

func broken(s string) bool { return strings.IndexByte(s, '\n') >= 0 || strings.IndexByte(s, '\r') >= 0 }

// errNoByte marks a failure before the first byte of a response.
var errNoByte = errors.New("connection ended before the response")

func (p *Pool) attempt(ctx context.Context, req *Request, fresh bool) (*Response, bool, error) {
	c, reused, err := p.take(ctx, req.Addr, fresh)
	if err != nil {
		return nil, false, &NotConnectedError{err}
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(aLongTimeAgo) })
	resp, err := p.exchange(c, req)
	if err != nil {
		stop()
		_ = c.Close()
		return nil, reused, err
	}
	r := &Response{Response: resp, conn: c, pool: p, stop: stop, body: resp.Body}
	resp.Body = r
	return r, reused, nil
}

func (p *Pool) exchange(c *conn, req *Request) (*http.Response, error) {
	writeErr := p.send(c, req)
	if errors.Is(writeErr, ErrBody) {
		return nil, writeErr
	}
	// A server may answer and close without reading all of the request; its
	// answer is worth more than the write error.
	c.limit.N = p.cfg.MaxHeadBytes
	if _, err := c.br.Peek(1); err != nil {
		if writeErr != nil {
			err = writeErr
		}
		return nil, errors.Join(errNoByte, err)
	}
	for {
		resp, err := http.ReadResponse(c.br, &http.Request{Method: req.Method})
		switch {
		case err != nil && c.limit.N <= 0:
			return nil, ErrHeadTooLong
		case err != nil:
			return nil, err
		case resp.StatusCode == http.StatusSwitchingProtocols && req.Upgrade == "":
			return nil, errUnasked
		case resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols:
			c.limit.N = math.MaxInt64
			if writeErr != nil {
				resp.Close = true
			}
			return resp, nil
		}
	}
}

// send writes the request with a buffer that is lent for it.
func (p *Pool) send(c *conn, req *Request) error {
	c.bw, _ = p.writers.Get().(*bufio.Writer)
	if c.bw == nil {
		c.bw = bufio.NewWriterSize(nil, 4<<10)
	}
	c.bw.Reset(c.Conn)
	err := c.send(req)
	c.bw.Reset(nil)
	p.writers.Put(c.bw)
	c.bw = nil
	return err
}

// send writes the request. Small ones leave in one packet.
func (c *conn) send(req *Request) error {
	w := c.bw
	for _, s := range [...]string{req.Method, " ", req.Target, " HTTP/1.1\r\nHost: ", req.Host, "\r\n"} {
		_, _ = w.WriteString(s) // bufio keeps the first error
	}
	for name, values := range req.Header {
		for _, v := range values {
			for _, s := range [...]string{name, ": ", v, "\r\n"} {
				_, _ = w.WriteString(s)
			}
		}
	}
	if req.Upgrade != "" {
		_, _ = w.WriteString("Connection: Upgrade\r\nUpgrade: " + req.Upgrade + "\r\n")
	}
	return c.sendBody(req)
}

func (c *conn) sendBody(req *Request) error {
	w := c.bw
	switch {
	case req.Stream != nil && req.Length < 0:
		_, _ = w.WriteString("Transfer-Encoding: chunked\r\n\r\n")
		return c.sendChunked(source{req.Stream})
	case req.Stream != nil:
		c.writeLength(req.Length)
		if _, err := io.CopyN(w, source{req.Stream}, req.Length); errors.Is(err, io.EOF) {
			return fmt.Errorf("%w: %w", ErrBody, io.ErrUnexpectedEOF)
		} else if err != nil {
			return err
		}
	case req.Body != nil:
		c.writeLength(int64(len(req.Body)))
		_, _ = w.Write(req.Body)
	case req.Method == http.MethodPost || req.Method == http.MethodPut || req.Method == http.MethodPatch:
		c.writeLength(0)
	default:
		_, _ = w.WriteString("\r\n")
	}
	return w.Flush()
}

// source is a streamed body whose errors are told from those of the connection.
type source struct{ io.Reader }

func (s source) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %w", ErrBody, err)
	}
	return n, err
}

func (c *conn) writeLength(n int64) {
	var digits [20]byte
	_, _ = c.bw.WriteString("Content-Length: ")
	_, _ = c.bw.Write(strconv.AppendInt(digits[:0], n, 10))
	_, _ = c.bw.WriteString("\r\n\r\n")
}

func (c *conn) sendChunked(body io.Reader) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			_, _ = c.bw.WriteString(strconv.FormatInt(int64(n), 16) + "\r\n")
			_, _ = c.bw.Write(buf[:n])
			if _, werr := c.bw.WriteString("\r\n"); werr != nil {
				return werr
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			_, _ = c.bw.WriteString("0\r\n\r\n")
			return c.bw.Flush()
		case err != nil:
			return err // no last chunk: the server sees a cut request
		}
	}
}

// Read reads the body.
func (r *Response) Read(b []byte) (int, error) {
	n, err := r.body.Read(b)
	if errors.Is(err, io.EOF) {
		r.done = true
	}
	return n, err
}

// Close ends the response. The connection is kept if all of the response was
// read and both sides agree to keep it; otherwise it is closed, which tells the
// server to stop.
func (r *Response) Close() error {
	if r.conn == nil {
		return nil
	}
	c := r.conn
	r.conn = nil
	if !r.stop() || !r.reusable() {
		return c.Close()
	}
	r.pool.put(c)
	return nil
}

func (r *Response) reusable() bool {
	if r.ContentLength == 0 || r.Response.Request.Method == http.MethodHead {
		r.done = true
	}
	return r.done && !r.Response.Close && r.StatusCode != http.StatusSwitchingProtocols
}

// Hijack returns the connection of a protocol switch, with what was read ahead.
// The caller closes it.
func (r *Response) Hijack() (io.ReadWriteCloser, io.Reader) {
	c := r.conn
	r.conn = nil
	r.stop()
	_ = c.SetDeadline(time.Time{})
	return c.Conn, c.br
}
