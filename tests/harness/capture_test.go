// SPDX-License-Identifier: Apache-2.0

//go:build linux

package harness

import (
	"bytes"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestACaptureSeesBothDirectionsOfOneHost(t *testing.T) {
	bridge := NewBridge(t)
	alpha, beta := NewHost(t, "alpha"), NewHost(t, "beta")
	bridge.Attach(alpha, "192.0.2.1/24")
	bridge.Attach(beta, "192.0.2.2/24")
	var mu sync.Mutex // guards seen
	seen := map[string]bool{}
	stop := bridge.Capture(alpha, func(frame []byte) {
		mu.Lock()
		defer mu.Unlock()
		for _, word := range []string{"question", "answer"} {
			if bytes.Contains(frame, []byte(word)) {
				seen[word] = true
			}
		}
	})
	socket := func(h *Host, addr string) net.PacketConn {
		var conn net.PacketConn
		require.NoError(t, h.Do(func() (err error) {
			conn, err = net.ListenPacket("udp4", addr)
			return err
		}))
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	a, b := socket(alpha, "192.0.2.1:0"), socket(beta, "192.0.2.2:0")
	_, err := a.WriteTo([]byte("question"), b.LocalAddr())
	require.NoError(t, err)
	_, err = b.WriteTo([]byte("answer"), a.LocalAddr())
	require.NoError(t, err)
	Eventually(t, patience, "both datagrams", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(seen) == 2
	})
	require.Zero(t, stop())
	require.Zero(t, stop(), "a second call changes nothing")
}
