// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

const streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

// firstPause is longer than a chunk's way through any path.
const firstPause = 2 * time.Millisecond

// Serve is the stand-in: it answers on ln until ctx ends, and returns nil after all its connections have ended. It
// reads every request whole before it answers.
func Serve(ctx context.Context, ln net.Listener) error {
	var serving sync.WaitGroup
	defer serving.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })()
	fast := newReplies()
	for {
		conn, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		serving.Go(func() {
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			defer func() { _ = conn.Close() }()
			s := session{replies: fast, conn: conn, in: bufio.NewReaderSize(conn, 16<<10)}
			for s.exchange(ctx) == nil { // an end, or a client that speaks what is not understood
			}
		})
	}
}

// replies are the bytes of all answers.
type replies struct {
	models, answer, missing []byte
	stream                  [][]byte // one write each, the first with the head
}

func newReplies() replies {
	r := replies{
		models: whole("200 OK", modelList), answer: whole("200 OK", answer), missing: whole("404 Not Found", "{}"),
		stream: [][]byte{append([]byte(streamHead), framed(chunk(0))...)},
	}
	for i := 1; i < Chunks; i++ {
		r.stream = append(r.stream, framed(chunk(i)))
	}
	r.stream = append(r.stream, framed(done), framed(""))
	return r
}

// whole returns an answer with its length.
func whole(status, body string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		status, len(body), body)
}

// framed returns one chunk of a chunked body, the last one for no bytes.
func framed(b string) []byte { return fmt.Appendf(nil, "%x\r\n%s\r\n", len(b), b) }

// session is one connection.
type session struct {
	replies
	conn net.Conn
	in   *bufio.Reader
	body []byte // of the last request; its memory is used again
}

// exchange reads a request and answers it.
func (s *session) exchange(ctx context.Context) error {
	what, err := s.read()
	if err != nil {
		return err
	}
	switch what {
	case "GET /v1/models":
		_, err = s.conn.Write(s.models)
	case "POST /v1/chat/completions":
		err = s.chat(ctx)
	default:
		_, err = s.conn.Write(s.missing)
	}
	return err
}

func (s *session) chat(ctx context.Context) error {
	marks := s.body[:min(len(s.body), markBytes)]
	if !bytes.Contains(marks, []byte(streamMark)) {
		_, err := s.conn.Write(s.answer)
		return err
	}
	if _, rest, slow := bytes.Cut(marks, []byte(slowMark)); slow {
		digits, _, _ := bytes.Cut(rest, []byte(","))
		seconds, err := strconv.Atoi(string(digits))
		if err != nil {
			return err
		}
		return s.slow(ctx, seconds)
	}
	pause := bytes.Contains(marks, []byte(pauseMark))
	for i, b := range s.stream {
		if i == 1 && pause {
			<-time.After(firstPause)
		}
		if _, err := s.conn.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// slow sends a chunk a second, the first at once.
func (s *session) slow(ctx context.Context, chunks int) error {
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	next := append([]byte(streamHead), framed(chunk(0))...)
	for i := range chunks {
		if i > 0 {
			select {
			case <-ticks.C:
			case <-ctx.Done():
				return ctx.Err()
			}
			next = framed(chunk(i))
		}
		if _, err := s.conn.Write(next); err != nil {
			return err
		}
	}
	_, err := s.conn.Write(append(framed(done), framed("")...))
	return err
}

// read reads a request and returns its method and target.
func (s *session) read() (what string, err error) {
	line, err := s.in.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	method, rest, _ := bytes.Cut(line, []byte(" "))
	target, _, _ := bytes.Cut(rest, []byte(" "))
	what = string(method) + " " + string(target)
	length, chunked, err := readFraming(s.in)
	if err != nil {
		return "", err
	}
	if chunked {
		return "", errors.New("a chunked request is not understood")
	}
	if length > cap(s.body) {
		s.body = make([]byte, length)
	}
	s.body = s.body[:max(length, 0)]
	_, err = io.ReadFull(s.in, s.body)
	return what, err
}

// readFraming reads header fields to their end. It returns -1 for a length that is not told.
func readFraming(in *bufio.Reader) (length int, chunked bool, err error) {
	length = -1
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return 0, false, err
		}
		if len(line) <= 2 {
			return length, chunked, nil
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case len(name) == len("Content-Length") && bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, false, err
			}
		case len(name) == len("Transfer-Encoding") && bytes.EqualFold(name, []byte("Transfer-Encoding")):
			chunked = true
		}
	}
}
