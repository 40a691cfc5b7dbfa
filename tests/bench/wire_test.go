// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"time"
)

// readBuffer takes the longest frame of this suite whole, so that a line is never copied.
const readBuffer = 2 << 20

// callWithin bounds every wait for a frame.
const callWithin = 20 * time.Second

// wire is a client that does as little as possible: frames are bytes, and an answer is the line that begins with its
// id. It belongs to one goroutine, or to one that writes and one that reads.
type wire struct {
	w    io.Writer
	r    *bufio.Reader
	stop interface{ SetReadDeadline(time.Time) error } // of the stream below r
	last int                                           // id of the newest request
}

// stream is what a pipe and a socket have in common.
type stream interface {
	io.Reader
	SetReadDeadline(time.Time) error
}

func newWire(w io.Writer, r stream) *wire {
	return &wire{w: w, r: bufio.NewReaderSize(r, readBuffer), stop: r}
}

// within bounds what is read from now on.
func (c *wire) within(d time.Duration) { _ = c.stop.SetReadDeadline(time.Now().Add(d)) }

// next returns the next line; it is valid until the next call.
func (c *wire) next() ([]byte, error) {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return nil, fmt.Errorf("read a frame: %w", err)
	}
	return line, nil
}

// awaitNotification skips lines until one of that method.
func (c *wire) awaitNotification(method string) error {
	c.within(callWithin)
	for {
		line, err := c.next()
		if err != nil {
			return fmt.Errorf("await %s: %w", method, err)
		}
		if bytes.Contains(line, []byte(`"method":"`+method+`"`)) {
			return nil
		}
	}
}

// frame appends a request to b; params may be empty.
func frame(b []byte, id int, method, params string) []byte {
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = strconv.AppendInt(b, int64(id), 10)
	b = append(append(b, `,"method":"`...), method...)
	b = append(b, '"')
	if params != "" {
		b = append(append(b, `,"params":`...), params...)
	}
	return append(b, "}\n"...)
}

// answered returns the id of a response that is no error; ok is false for any other line.
func answered(line []byte) (id int, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"jsonrpc":"2.0","id":`))
	digits, rest, found := bytes.Cut(rest, []byte(","))
	if !ok || !found || !bytes.HasPrefix(rest, []byte(`"result":`)) {
		return 0, false
	}
	id, err := strconv.Atoi(string(digits))
	return id, err == nil
}

// isError reports whether a line is an error answer.
func isError(line []byte) bool {
	_, rest, _ := bytes.Cut(line, []byte(","))
	_, rest, _ = bytes.Cut(rest, []byte(","))
	return bytes.HasPrefix(rest, []byte(`"error":`))
}

// call sends a request and returns the line of its answer, valid until the next call, and the time between.
func (c *wire) call(method, params string) ([]byte, time.Duration, error) {
	c.last++
	request := frame(nil, c.last, method, params)
	begin := time.Now()
	if _, err := c.w.Write(request); err != nil {
		return nil, 0, fmt.Errorf("call %s: %w", method, err)
	}
	for {
		line, err := c.next()
		took := time.Since(begin)
		switch id, ok := answered(line); {
		case err != nil:
			return nil, 0, fmt.Errorf("call %s: %w", method, err)
		case ok && id == c.last:
			return line, took, nil
		case isError(line):
			return nil, 0, fmt.Errorf("call %s: answered %.200s", method, line)
		}
	}
}
