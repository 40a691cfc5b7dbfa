// SPDX-License-Identifier: Apache-2.0

//go:build linux

package harness

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// wireWait bounds the waits of a Wire that name no time of their own.
const wireWait = 30 * time.Second

// Wire is the other end of a link, byte for byte: for what no library would send, and to see what it would not show.
// It reads all the time. A line that is no frame fails the test.
type Wire struct {
	t testing.TB
	w io.Writer

	mu      sync.Mutex // guards the rest but next
	frames  []Frame
	ended   bool
	changed chan struct{} // closed and replaced with each frame and at the end
	ignored string        // method of frames that are checked and not kept

	next int // frames that the test has taken; its goroutine's
}

// Frame is one line that arrived. A member that was not there is nil.
type Frame struct {
	Line   string // without its newline
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *ErrorObject
}

// ErrorObject is the error of a response.
type ErrorObject struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// NewWire reads from r until its end, or else closes it at the end of the test. Writing is the test's own.
func NewWire(t testing.TB, r io.ReadCloser, w io.Writer) *Wire {
	c := &Wire{t: t, w: w, changed: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.read(r)
	}()
	t.Cleanup(func() {
		_ = r.Close()
		<-done
	})
	return c
}

// Wire speaks to a process over its standard streams.
func (p *Proc) Wire(t testing.TB) *Wire { return NewWire(t, p.Stdout, p.Stdin) }

func (c *Wire) read(r io.Reader) {
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := in.ReadString('\n')
		if err == nil {
			c.take(strings.TrimSuffix(line, "\n"))
			continue
		}
		c.mu.Lock()
		c.ended = true
		close(c.changed)
		c.mu.Unlock()
		return
	}
}

// take checks a line and keeps it.
func (c *Wire) take(line string) {
	var members map[string]json.RawMessage
	f := Frame{Line: line}
	err := json.Unmarshal([]byte(line), &members)
	f.ID, f.Params, f.Result = members["id"], members["params"], members["result"] // null is not absent
	if method := members["method"]; method != nil && err == nil {
		err = json.Unmarshal(method, &f.Method)
	}
	if object := members["error"]; object != nil && err == nil {
		err = json.Unmarshal(object, &f.Error)
	}
	switch {
	case err != nil, !utf8.ValidString(line), string(members["jsonrpc"]) != `"2.0"`,
		(f.Method != "") == (f.Result != nil || f.Error != nil), // a call or an answer
		f.Result != nil && f.Error != nil, f.Method == "" && f.ID == nil:
		c.t.Errorf("no frame on a link: %.200q", line)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.Method != "" && f.Method == c.ignored {
		return
	}
	c.frames = append(c.frames, f)
	close(c.changed)
	c.changed = make(chan struct{})
}

// Ignore leaves out the notifications of that method from now on.
func (c *Wire) Ignore(method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ignored = method
}

// Send writes lines, each with its newline.
func (c *Wire) Send(lines ...string) {
	c.t.Helper()
	c.Write(strings.Join(lines, "\n") + "\n")
}

// Write writes the text as it is.
func (c *Wire) Write(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.w, text); err != nil {
		c.t.Fatalf("write to a link: %v", err)
	}
}

// Frames returns all that arrived so far.
func (c *Wire) Frames() []Frame {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.frames[:len(c.frames):len(c.frames)]
}

// Next returns the next frame that the test has not seen.
func (c *Wire) Next() Frame {
	c.t.Helper()
	return c.Await("a frame", wireWait, func(Frame) bool { return true })
}

// Await returns the next frame that satisfies ok; those before it count as seen. It fails the test after d, or when
// the link has ended without one.
func (c *Wire) Await(what string, d time.Duration, ok func(Frame) bool) Frame {
	c.t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	first := c.next
	for {
		c.mu.Lock()
		frames, ended, changed := c.frames, c.ended, c.changed
		c.mu.Unlock()
		for c.next < len(frames) {
			c.next++
			if f := frames[c.next-1]; ok(f) {
				return f
			}
		}
		if ended {
			c.t.Fatalf("link ended without %s; since the last one: %s", what, tail(frames[first:]))
		}
		select {
		case <-changed:
		case <-timer.C:
			c.t.Fatalf("not within %v: %s; since the last one: %s", d, what, tail(frames[first:]))
		}
	}
}

// Answer returns the answer to the request with that id, as it was written.
func (c *Wire) Answer(id string) Frame {
	c.t.Helper()
	return c.Await("the answer to id "+id, wireWait, func(f Frame) bool { return f.Method == "" && string(f.ID) == id })
}

// Call sends a request, with params as JSON text or "" for none, and returns its answer.
func (c *Wire) Call(id, method, params string) Frame {
	c.t.Helper()
	c.Send(RequestLine(id, method, params))
	return c.Answer(id)
}

// AwaitEnd waits until the peer has ended the link.
func (c *Wire) AwaitEnd(d time.Duration) {
	c.t.Helper()
	if !poll(d, func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.ended }) {
		c.t.Fatalf("the peer has not ended the link within %v", d)
	}
}

// RequestLine returns a request, or with an id of "" a notification; id and params are JSON text, params "" for none.
func RequestLine(id, method, params string) string {
	line := `{"jsonrpc":"2.0"`
	if id != "" {
		line += `,"id":` + id
	}
	name, _ := json.Marshal(method) // a string always encodes
	line += `,"method":` + string(name)
	if params != "" {
		line += `,"params":` + params
	}
	return line + "}"
}

// tail returns the last few frames for a message, each cut.
func tail(frames []Frame) string {
	const most, length = 5, 200
	var text strings.Builder
	for _, f := range frames[max(0, len(frames)-most):] {
		text.WriteString("\n  " + f.Line[:min(len(f.Line), length)])
	}
	if text.Len() == 0 {
		return "nothing"
	}
	return text.String()
}
