// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// echo answers with everything it was asked, in the way that X-Do says.
func echo(w http.ResponseWriter, r *http.Request) {
	do := strings.Join(r.Header["X-Do"], ",")
	is := func(word string) bool { return strings.Contains(do, word) }
	rc := http.NewResponseController(w)
	if is("duplex") && !is("early") && !is("part") && !is("close-body") { // with an unread rest net/http drops the connection
		_ = rc.EnableFullDuplex()
	}
	if is("early") {
		w.Header().Set("X-Early", "yes")
		_, _ = io.WriteString(w, "unread")
		return
	}
	if is("close-body") {
		_ = r.Body.Close()
	}
	if is("hints") {
		w.Header().Set("Link", "</a>")
		w.WriteHeader(http.StatusEarlyHints)
	}
	if is("abort") {
		panic(http.ErrAbortHandler)
	}
	answerEcho(w, r, is, rc)
}

func answerEcho(w http.ResponseWriter, r *http.Request, is func(string) bool, rc *http.ResponseController) {
	b, err := describe(r, is("part"))
	h := w.Header()
	if is("duplex") && err != nil { // net/http would read on behind the fault, as if a request began there
		h.Set("Connection", "close")
	}
	for _, set := range headersOf(b.Len()) {
		if is(set.word) {
			h[set.name] = set.values
		}
	}
	for word, status := range map[string]int{"s204": 204, "s304": 304, "s404": 404, "s599": 599, "s101": 101} {
		if is(word) {
			w.WriteHeader(status)
			h.Set("X-Late", "too late")
			break
		}
	}
	if is("none") {
		return
	}
	if is("flush") || b.Len() > 2048 { // net/http's buffer is smaller
		_ = rc.Flush()
	}
	for is("pieces") && b.Len() > 10 {
		_, _ = w.Write(b.Next(10))
		_ = rc.Flush()
	}
	if n, err := w.Write(b.Bytes()); err != nil {
		h.Set(http.TrailerPrefix+"X-Error", fmt.Sprint(n, err))
	}
	if is("trailers") {
		h.Set("X-Sum", "1")
		h.Set(http.TrailerPrefix+"X-More", "2\r\nX: y")
		h.Set("Content-Length", "5")
	}
	if is("cut") {
		_ = rc.Flush()
		panic(http.ErrAbortHandler)
	}
}

// describe returns all of a request, or without most of its body.
func describe(r *http.Request, part bool) (*bytes.Buffer, error) {
	var in io.Reader = r.Body
	if part {
		in = io.LimitReader(in, 5)
	}
	body, err := io.ReadAll(in)
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %q %q %s %q %d %q close=%v\n", r.Method, r.RequestURI, r.Host, r.Proto, r.URL, r.ContentLength,
		r.TransferEncoding, r.Close)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		fmt.Fprintf(&b, "%q: %q\n", name, r.Header[name])
	}
	fmt.Fprintf(&b, "body %q %v\n", body, err)
	if !part {
		for _, name := range slices.Sorted(maps.Keys(r.Trailer)) {
			fmt.Fprintf(&b, "trailer %q: %q\n", name, r.Trailer[name])
		}
	}
	return &b, err
}

type headerOf struct {
	word, name string
	values     []string
}

// headersOf returns what a word in X-Do sets, for an answer of that length.
func headersOf(length int) []headerOf {
	return []headerOf{
		{"trailers", "Trailer", []string{"X-Sum, Content-Length"}},
		{"length", "Content-Length", []string{fmt.Sprint(length)}},
		{"short", "Content-Length", []string{fmt.Sprint(length + 1)}},
		{"excess", "Content-Length", []string{fmt.Sprint(length - 1)}},
		{"typed", "Content-Type", []string{"text/x-echo"}},
		{"untyped", "Content-Type", nil},
		{"untyped", "Date", nil},
		{"last", "Connection", []string{"close"}},
		{"split", "X-Split", []string{"a\r\nX-Injected: b\r\n\r\n<html>", "\n c "}},
		{"split", "X-Bad\r\nX-Injected", []string{"d"}},
		{"split", "X Bad", []string{"e"}},
		{"identity", "Transfer-Encoding", []string{"identity"}},
		{"coded", "Transfer-Encoding", []string{"chunked"}},
		{"gzip", "Transfer-Encoding", []string{"gzip"}},
		{"encoded", "Content-Encoding", []string{"x"}},
		{"upgrade", "Connection", []string{"Upgrade"}},
		{"upgrade", "Upgrade", []string{"x"}},
		{"kept", "Connection", []string{"keep-alive"}},
	}
}

// script is a connection whose client has said everything already, and records
// what it is told.
type script struct {
	in     *bytes.Reader
	piece  int // bytes a Read returns at most, 0 for all
	closed chan struct{}

	mu  sync.Mutex // guards out and end
	out bytes.Buffer
	end bool // Write fails
}

func (s *script) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.piece > 0 && len(p) > s.piece {
		p = p[:s.piece]
	}
	return s.in.Read(p)
}

func (s *script) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end {
		return 0, net.ErrClosed
	}
	return s.out.Write(p)
}

func (s *script) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end = true
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	return nil
}

func (s *script) LocalAddr() net.Addr              { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
func (s *script) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2} }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

// oneListener accepts one connection, then waits for its end.
type oneListener struct {
	nc    *script
	taken bool
}

func (l *oneListener) Accept() (net.Conn, error) {
	if !l.taken {
		l.taken = true
		return l.nc, nil
	}
	<-l.nc.closed
	return nil, net.ErrClosed
}
func (l *oneListener) Close() error   { return nil }
func (l *oneListener) Addr() net.Addr { return l.nc.LocalAddr() }

const fuzzMaxHeader = 1000

// converse returns what a server answers to a client's words.
func converse(serve func(net.Listener) error, said []byte, piece int) string {
	nc := &script{in: bytes.NewReader(said), piece: piece, closed: make(chan struct{})}
	_ = serve(&oneListener{nc: nc})
	nc.mu.Lock()
	defer nc.mu.Unlock()
	return normal(nc.out.String())
}

func compare(t *testing.T, said []byte, piece int) {
	t.Helper()
	handler := http.HandlerFunc(echo)
	theirs := converse((&http.Server{
		Handler: handler, MaxHeaderBytes: fuzzMaxHeader, ErrorLog: log.New(io.Discard, "", 0), DisableGeneralOptionsHandler: true,
	}).Serve, said, piece)
	ours := converse((&Server{Handler: handler, MaxHeaderBytes: fuzzMaxHeader}).Serve, said, piece)
	if ours != theirs {
		t.Errorf("to %q in pieces of %d\nours:   %q\ntheirs: %q", said, piece, ours, theirs)
	}
}

// normal returns a server's words with the lines of each head in order and
// without the time.
func normal(s string) string {
	var b strings.Builder
	for s != "" {
		i := strings.Index(s, "HTTP/1.")
		if i < 0 {
			break
		}
		b.WriteString(s[:i])
		head, rest, _ := strings.Cut(s[i:], "\r\n\r\n")
		lines := strings.Split(head, "\r\n")
		for j, line := range lines {
			if strings.HasPrefix(line, "Date: ") && len(line) == len("Date: ")+len(http.TimeFormat) {
				lines[j] = "Date: now"
			}
		}
		slices.Sort(lines[1:])
		b.WriteString(strings.Join(lines, "\r\n") + "\r\n\r\n")
		s = rest
	}
	return b.String() + s
}

func FuzzAgainstNetHTTP(f *testing.F) {
	for _, said := range requests() {
		for _, piece := range []uint8{0, 1, 7} {
			f.Add([]byte(said), piece)
		}
	}
	f.Fuzz(func(t *testing.T, said []byte, piece uint8) {
		if len(said) > 64<<10 {
			t.Skip()
		}
		// net/http waits for half a second after some refusals, which takes no time in a bubble.
		synctest.Test(t, func(t *testing.T) { compare(t, said, int(piece)) })
	})
}
