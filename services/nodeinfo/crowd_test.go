// SPDX-License-Identifier: Apache-2.0

package nodeinfo

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// crowd are connections that never come to an end of their request, and are opened
// again a second after they were closed.
func crowd(t *testing.T, addr string, n int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg, connected sync.WaitGroup
	connected.Add(n)
	for i := range n {
		slow := i%2 == 0
		wg.Go(func() {
			first := sync.OnceFunc(connected.Done)
			defer first()
			for ctx.Err() == nil {
				stand(ctx, addr, slow, first)
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
			}
		})
	}
	t.Cleanup(func() { cancel(); wg.Wait() })
	connected.Wait()
}

// stand opens one of them and returns when it is closed. A slow one sends a byte of
// its header now and then, the others nothing.
func stand(ctx context.Context, addr string, slow bool, connected func()) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	connected()
	for slow {
		if _, err := io.WriteString(conn, "G"); err != nil {
			return
		}
		_ = conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		if _, err := conn.Read(make([]byte, 1)); err == nil || !isTimeout(err) {
			return
		}
	}
	_, _ = io.Copy(io.Discard, conn)
}

func isTimeout(err error) bool {
	timeout, ok := err.(net.Error)
	return ok && timeout.Timeout()
}

// tookToAsk returns how long n honest callers waited for their answers, one after
// another, each on a connection of its own from that address; shortest first.
func tookToAsk(t *testing.T, addr, from string, n int) []time.Duration {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 20 * time.Second}
	var took []time.Duration
	for range n {
		begin := time.Now()
		conn, err := dialer.Dial("tcp", addr)
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(begin.Add(20*time.Second)))
		_, err = io.WriteString(conn, strings.Replace(request, "Host: x", "Host: x\r\nConnection: close", 1))
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		require.Contains(t, body(t, resp.Body), nodeID)
		require.NoError(t, conn.Close())
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	return took
}

func TestACrowdThatNeverAsksDelaysNobody(t *testing.T) {
	c := start(t, desk(), nil)
	addr := "127.0.0.1:" + c.port()
	crowd(t, addr, 1500)
	for _, from := range []string{"127.0.0.1", "127.0.0.2"} { // one of the crowd's own address, as behind a NAT
		took := tookToAsk(t, addr, from, 200)
		p50, p99 := took[len(took)/2], took[len(took)*99/100]
		t.Logf("from %s: p50 %v, p99 %v, most %v", from, p50, p99, took[len(took)-1])
		require.Less(t, p50, 500*time.Millisecond) // a few may be late where the machine is busy; a crowd that keeps others out delays all
	}
	require.NoError(t, c.stop())
}
