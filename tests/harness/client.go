// SPDX-License-Identifier: Apache-2.0

//go:build linux

package harness

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sourcegraph/jsonrpc2"
)

// CallTimeout bounds every call of a Client that has no context of its own.
const CallTimeout = 30 * time.Second

// Client is the other end of a link: a library's, not ours, so that it proves
// the wire. It remembers every notification. A request of the peer fails the
// test: no process of the product sends one to its client or its parent.
type Client struct {
	t    testing.TB
	conn *jsonrpc2.Conn

	mu       sync.Mutex // guards the rest
	received []Notification
	changed  chan struct{} // closed and replaced with each notification
}

// Notification is one that arrived.
type Notification struct {
	Method string
	Params json.RawMessage
}

// NewClient speaks JSON-RPC over stream, which it closes at the end of the test.
func NewClient(t testing.TB, stream io.ReadWriteCloser) *Client {
	c := &Client{t: t, changed: make(chan struct{})}
	c.conn = jsonrpc2.NewConn(context.Background(), jsonrpc2.NewPlainObjectStream(stream), c)
	t.Cleanup(func() { _ = c.conn.Close() })
	return c
}

// Client speaks to a process over its standard streams.
func (p *Proc) Client(t testing.TB) *Client {
	return NewClient(t, procStream{p.Stdout, p.Stdin})
}

type procStream struct {
	io.Reader
	in *os.File
}

func (s procStream) Write(b []byte) (int, error) { return s.in.Write(b) }
func (s procStream) Close() error                { return s.in.Close() } // its end of input

// Handle takes what the peer sends. It is jsonrpc2's, not for tests.
func (c *Client) Handle(_ context.Context, _ *jsonrpc2.Conn, req *jsonrpc2.Request) {
	if !req.Notif {
		c.t.Errorf("the peer sent a request: %s", req.Method)
		return
	}
	n := Notification{Method: req.Method}
	if req.Params != nil {
		n.Params = slices.Clone(*req.Params)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received = append(c.received, n)
	close(c.changed)
	c.changed = make(chan struct{})
}

// Call calls a method; result may be nil. An error answer is a *jsonrpc2.Error.
func (c *Client) Call(method string, params, result any) error {
	ctx, cancel := context.WithTimeout(context.Background(), CallTimeout)
	defer cancel()
	var raw json.RawMessage
	if err := c.conn.Call(ctx, method, params, &raw); err != nil || result == nil {
		return err
	}
	return json.Unmarshal(raw, result)
}

// MustCall is Call for an answer that must not be an error.
func (c *Client) MustCall(method string, params, result any) {
	c.t.Helper()
	if err := c.Call(method, params, result); err != nil {
		c.t.Fatalf("call %s: %v", method, err)
	}
}

// CallError returns the code and message of a call that must be answered with an
// error.
func (c *Client) CallError(method string, params any) (code int64, message string) {
	c.t.Helper()
	err := c.Call(method, params, nil)
	var answer *jsonrpc2.Error
	if !errors.As(err, &answer) {
		c.t.Fatalf("call %s: got %v, want an error answer", method, err)
	}
	return answer.Code, answer.Message
}

// Notify sends a notification.
func (c *Client) Notify(method string, params any) {
	c.t.Helper()
	if err := c.conn.Notify(context.Background(), method, params); err != nil {
		c.t.Fatalf("notify %s: %v", method, err)
	}
}

// Notifications returns what arrived so far under that method, "" for all.
func (c *Client) Notifications(method string) []Notification {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []Notification
	for _, n := range c.received {
		if method == "" || n.Method == method {
			list = append(list, n)
		}
	}
	return list
}

// Await waits for a notification of that method whose params satisfy ok (nil for
// any), whether it arrived already or not, and returns the newest one that does.
func (c *Client) Await(method string, d time.Duration, ok func(json.RawMessage) bool) json.RawMessage {
	c.t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		list := c.Notifications(method)
		for _, n := range slices.Backward(list) {
			if ok == nil || ok(n.Params) {
				return n.Params
			}
		}
		select {
		case <-changed:
		case <-timer.C:
			c.t.Fatalf("no notification %s within %v that satisfies; got %d of that method", method, d, len(list))
		}
	}
}

// Disconnected is closed when the peer ended the link.
func (c *Client) Disconnected() <-chan struct{} { return c.conn.DisconnectNotify() }

// StartBroker starts a broker with the bundle's workers on the host and returns
// it once it has said app:ready.
func StartBroker(t testing.TB, h *Host, args ...string) (*Proc, *Client) {
	t.Helper()
	cmd := h.Command("nvpair-ui-broker", args...)
	cmd.Dir = Bin(t) // where it looks for its workers
	p := h.Start(cmd)
	c := p.Client(t)
	c.Await("app:ready", 30*time.Second, nil)
	return p, c
}
