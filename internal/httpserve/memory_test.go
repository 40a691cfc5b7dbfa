// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAnIdleConnectionHoldsLittleMemory(t *testing.T) {
	const conns = 1000
	stream, stop := make(chan struct{}, conns), make(chan struct{})
	s := &Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ok(w, r)
		if r.URL.Path == "/stream" {
			w.(http.Flusher).Flush()
			stream <- struct{}{}
			<-stop
		}
	})}
	addr := serve(t, s)
	pair := costOfSockets(t, conns)
	bare := inUse()
	clients := make([]*client, conns)
	for i := range clients {
		clients[i] = dial(t, addr)
		require.NoError(t, clients[i].SetDeadline(time.Now().Add(6*patience))) // there are many
	}
	dialled := inUse()
	for _, c := range clients {
		c.say(get)
		c.answer("GET")
	}
	require.Eventually(t, func() bool {
		for _, c := range s.snapshot() {
			if c.state.Load() != stateIdle {
				return false
			}
		}
		return true
	}, patience, time.Millisecond)
	each := func(now int64) int64 { return (now-bare)/conns - pair }
	var idle int64
	require.Eventually(t, func() bool { // once the last of them is parked
		idle = inUse()
		return each(idle) < 10<<10
	}, 3*patience, parkAfter, "of %d connections, each", conns)
	for _, c := range clients {
		c.say("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n")
	}
	for range conns {
		<-stream
	}
	<-time.After(3 * lookEvery)
	streaming := inUse()
	close(stop)
	t.Logf("bytes per connection beyond its sockets: fresh %d, idle %d, streaming %d",
		each(dialled), each(idle), each(streaming))
}

// costOfSockets returns the bytes that a connection costs without a server, at
// both ends.
func costOfSockets(t *testing.T, conns int) int64 {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	before := inUse()
	both := make([]net.Conn, 0, 2*conns)
	for range conns {
		near := dial(t, ln.Addr().String())
		far, err := ln.Accept()
		require.NoError(t, err)
		both = append(both, near, far)
	}
	cost := inUse() - before
	for _, nc := range both {
		_ = nc.Close()
	}
	return cost / int64(conns)
}

// inUse returns the bytes of heap and stacks in use.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
