// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

// serve serves on loopback until the test ends.
func serve(t testing.TB, s *Server) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		serving.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, s.Shutdown(ctx), "a connection outlives Close")
	})
	return ln.Addr().String()
}

// client is one end of a connection, with whatever it says word for word.
type client struct {
	t testing.TB
	net.Conn
	in *bufio.Reader
}

func dial(t testing.TB, addr string) *client {
	t.Helper()
	nc, err := net.DialTimeout("tcp", addr, patience)
	require.NoError(t, err)
	t.Cleanup(func() { _ = nc.Close() })
	require.NoError(t, nc.SetDeadline(time.Now().Add(patience)))
	return &client{t, nc, newReader(nc)}
}

func (c *client) say(s string) {
	c.t.Helper()
	_, err := io.WriteString(c, s)
	require.NoError(c.t, err)
}

// answer reads a response to a request of that method.
func (c *client) answer(method string) (*http.Response, string) {
	c.t.Helper()
	resp, err := http.ReadResponse(c.in, &http.Request{Method: method})
	require.NoError(c.t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(c.t, err)
	require.NoError(c.t, resp.Body.Close())
	return resp, string(body)
}

// ended reports whether the server has closed the connection without a further
// word.
func (c *client) ended() bool {
	_, err := c.in.ReadByte()
	var timeout net.Error
	return err != nil && !(errors.As(err, &timeout) && timeout.Timeout())
}

// await waits for something to happen.
func await(t testing.TB, what string, happened <-chan struct{}) {
	t.Helper()
	select {
	case <-happened:
	case <-time.After(patience):
		t.Fatal("not within ", patience, ": ", what)
	}
}

func newReader(nc net.Conn) *bufio.Reader { return bufio.NewReaderSize(nc, 512) }
