// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is how long a test waits for what should come at once.
const patience = 30 * time.Second

// brief is how long a test looks on to see that nothing comes.
const brief = 50 * time.Millisecond

// client is a connection that a test writes and reads itself.
type client struct {
	t  *testing.T
	nc *net.TCPConn
	r  *bufio.Reader
}

func dial(t *testing.T, e *Engine) *client {
	t.Helper()
	nc, err := net.Dial("tcp", e.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = nc.Close() })
	require.NoError(t, nc.SetDeadline(time.Now().Add(patience)))
	return &client{t: t, nc: nc.(*net.TCPConn), r: bufio.NewReader(nc)}
}

// post sends a request with a body.
func (c *client) post(path, body string) *client {
	c.t.Helper()
	return c.send(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body))
}

func (c *client) send(raw string) *client {
	c.t.Helper()
	_, err := io.WriteString(c.nc, raw)
	require.NoError(c.t, err)
	return c
}

// response reads the head of an answer.
func (c *client) response() (*http.Response, error) {
	return http.ReadResponse(c.r, &http.Request{Method: "POST"})
}

// answer reads a whole answer.
func (c *client) answer() (status int, body string, err error) {
	c.t.Helper()
	res, err := c.response()
	if err != nil {
		return 0, "", err
	}
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}

// whole is answer for one that must be complete.
func (c *client) whole() (status int, body string) {
	c.t.Helper()
	status, body, err := c.answer()
	require.NoError(c.t, err, "status %d, body %q", status, body)
	return status, body
}

// rest reads all bytes until the connection ends.
func (c *client) rest() (string, error) {
	var b bytes.Buffer
	_, err := io.Copy(&b, c.r)
	return b.String(), err
}

// silent checks that nothing comes, and that the connection lives.
func (c *client) silent() {
	c.t.Helper()
	require.NoError(c.t, c.nc.SetReadDeadline(time.Now().Add(brief)))
	b, err := c.r.Peek(1)
	var ne net.Error
	require.ErrorAs(c.t, err, &ne, "came: %q", b)
	require.True(c.t, ne.Timeout(), "%v", err)
	require.NoError(c.t, c.nc.SetReadDeadline(time.Now().Add(patience)))
}

// await waits for a state of the witness.
func await(t *testing.T, e *Engine, what string, ok func(Report) bool) Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := e.AwaitWitness(ctx, ok)
	require.NoError(t, err, "%s; seen: %+v", what, r)
	return r
}

// ended waits until n requests have ended and returns the records.
func ended(t *testing.T, e *Engine, n int) []Record {
	t.Helper()
	return await(t, e, fmt.Sprintf("%d requests end", n), func(r Report) bool {
		return r.Open == 0 && r.Total >= int64(n)
	}).Requests
}

const (
	chatWhole  = `{"model":"demo",` + hi + `,"stream":false}`
	chatStream = `{"model":"demo",` + hi + `}`
)

func inject(t *testing.T, e *Engine, faults ...Fault) {
	t.Helper()
	require.NoError(t, e.Faults.Set(faults...))
}

// dialOnce connects and disconnects.
func dialOnce(e *Engine) (string, error) {
	nc, err := net.Dial("tcp", e.Addr())
	if err != nil {
		return "", err
	}
	return nc.LocalAddr().String(), nc.Close()
}
