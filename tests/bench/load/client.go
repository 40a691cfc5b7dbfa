// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// client sends one request again and again over one connection.
type client struct {
	conn    net.Conn
	in      *bufio.Reader
	request []byte
	want    []byte // the body of a right answer
	first   func() // called at the first byte of each answer's body; may be nil
}

func dial(c *Cell, request, want []byte) (*client, error) {
	conn, err := net.DialTimeout("tcp", c.Addr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	size := 16 << 10
	if c.Kind == KindSlow {
		size = 4 << 10
	}
	return &client{conn: conn, in: bufio.NewReaderSize(conn, size), request: request, want: want}, nil
}

// ask sends the request and reads the answer. It returns the time from the first byte sent to the first of the
// answer's body and to the end of it, and an error for every answer that is not exactly the right one.
func (c *client) ask() (first, whole time.Duration, err error) {
	began := time.Now()
	if _, err := c.conn.Write(c.request); err != nil {
		return 0, 0, err
	}
	status, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, 0, fmt.Errorf("await an answer: %w", err)
	}
	if !bytes.HasPrefix(status, []byte("HTTP/1.1 200 ")) {
		return 0, 0, fmt.Errorf("answered %q", status)
	}
	length, chunked, err := readFraming(c.in)
	switch {
	case err != nil:
		return 0, 0, fmt.Errorf("read the answer's head: %w", err)
	case chunked:
		first, err = c.readChunks(began)
	case length != len(c.want):
		return 0, 0, fmt.Errorf("answer of length %d, want %d", length, len(c.want))
	default:
		first, err = c.firstByte(began)
		if err == nil {
			err = c.match(c.want)
		}
	}
	return first, time.Since(began), err
}

// firstByte waits for the next byte and returns how long it took since the beginning.
func (c *client) firstByte(began time.Time) (time.Duration, error) {
	if _, err := c.in.Peek(1); err != nil {
		return 0, err
	}
	if c.first != nil {
		c.first()
	}
	return time.Since(began), nil
}

// readChunks reads a chunked body to its end.
func (c *client) readChunks(began time.Time) (first time.Duration, err error) {
	rest := c.want
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return 0, fmt.Errorf("%w after %d of %d bytes", err, len(c.want)-len(rest), len(c.want))
		}
		size, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 31)
		if err != nil || int(size) > len(rest) {
			return 0, fmt.Errorf("chunk of size %q where %d bytes are left", line, len(rest))
		}
		if first == 0 && size > 0 {
			if first, err = c.firstByte(began); err != nil {
				return 0, err
			}
		}
		if err := c.match(rest[:size]); err != nil {
			return 0, err
		}
		rest = rest[size:]
		if line, err = c.in.ReadSlice('\n'); err != nil || len(line) != 2 {
			return 0, fmt.Errorf("chunk ended by %q: %w", line, err)
		}
		if size == 0 {
			break
		}
	}
	if len(rest) > 0 {
		return 0, fmt.Errorf("stream ended %d bytes early", len(rest))
	}
	return first, nil
}

// match reads exactly these bytes.
func (c *client) match(want []byte) error {
	for len(want) > 0 {
		if _, err := c.in.Peek(1); err != nil {
			return fmt.Errorf("%w, %d bytes early", err, len(want))
		}
		got, err := c.in.Peek(min(c.in.Buffered(), len(want)))
		if err != nil {
			return err
		}
		if !bytes.Equal(got, want[:len(got)]) {
			return fmt.Errorf("answered %.100q, want %.100q", got, want)
		}
		_, _ = c.in.Discard(len(got)) // what is buffered
		want = want[len(got):]
	}
	return nil
}

// requestTo returns a request's bytes.
func requestTo(c *Cell) []byte {
	body := prompt(c.Kind, c.Seconds, c.BodyBytes)
	var b bytes.Buffer
	_, _ = fmt.Fprintf(&b, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nUser-Agent: loadtool\r\nAccept: */*\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", c.Addr, len(body))
	_, _ = io.WriteString(&b, body)
	return b.Bytes()
}
