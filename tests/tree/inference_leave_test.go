// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/tests/engine"
	"nvpair/tests/harness"
)

// leaveWithin is how long an engine may go on for a client that has left. How long it takes is a benchmark's matter.
const leaveWithin = 2 * time.Second

func TestTheEngineIsFreeWhenItsClientLeaves(t *testing.T) {
	t.Parallel()
	n := startInference(t, engine.Config{Slots: 1})
	for i, at := range []engine.Moment{engine.AtBeforeHeaders, engine.AtAfterHeaders, engine.AtMidStream} {
		n.engine.ResetWitness()
		require.NoError(t, n.engine.Faults.Set(engine.Fault{Kind: engine.KindHang, At: at, Path: "/v1/chat/completions"}))
		ctx, leave := context.WithCancel(context.Background())
		t.Cleanup(leave)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:11434/v1/chat/completions",
			strings.NewReader(`{"model":"demo","stream":true,"messages":[{"role":"user","content":"hello"}]}`))
		require.NoError(t, err)
		began, ended := make(chan struct{}, 1), make(chan struct{})
		go func() {
			defer close(ended)
			resp, err := n.http.Do(req)
			if err != nil {
				return
			}
			defer func() { _ = resp.Body.Close() }()
			began <- struct{}{}
			<-ctx.Done()
		}()
		if at == engine.AtMidStream {
			select {
			case <-began:
			case <-ended:
				require.FailNow(t, "the answer never began")
			}
		}
		n.awaitEngine("the request is there", func(r engine.Report) bool { return running(r) == 1 })
		left := time.Now()
		leave()
		n.awaitEngine("the client has left", func(r engine.Report) bool { return running(r) == 0 })
		elapsed := time.Since(left)
		t.Logf("%s: the engine saw its client leave after %v", at, elapsed)
		require.Less(t, elapsed, leaveWithin, at)
		<-ended
		for _, r := range n.engine.Witness().Requests {
			require.Equal(t, r.Method == http.MethodPost, r.End == "left", "%s: %s %s %s", at, r.Method, r.Path, r.End)
		}

		n.engine.Faults.Clear()
		n.requireServed(11434) // the engine has one slot
		require.Equal(t, map[string]int{"cancelled": i + 1, "completed": i + 1}, n.jobs.awaitEnded(t, 2*(i+1)), at)
	}
}

// The 30 s after which such a client is given up are too long for this suite. What it costs until then is not.
func TestClientsThatDoNotReadCostLittle(t *testing.T) {
	t.Parallel()
	const clients = 50
	n := startPlain(t, engine.Config{Pace: engine.Pace{Chunks: 1 << 20, ChunkBytes: 128 << 10}}) // 128 GiB
	proxy := pidOf(t, n.c, "nvpair-proxy")
	before := peakMemory(t, proxy)
	n.engine.ResetWitness()
	var conns []net.Conn
	for range clients {
		conn, err := n.h.Dial("tcp", "127.0.0.1:11434")
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
		const body = `{"model":"demo","stream":true,"max_tokens":1000000,"messages":[{"role":"user","content":"hello"}]}`
		_, err = fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s",
			len(body), body)
		require.NoError(t, err)
		conns = append(conns, conn)
	}
	n.awaitEngine("all streams run", func(r engine.Report) bool { return running(r) == clients })

	sent, since := int64(0), time.Now()
	harness.Eventually(t, inferenceWithin, "the engine can send no more", func() bool {
		now := int64(0)
		for _, r := range n.engine.Witness().Requests {
			now += r.SentBytes
		}
		if now != sent {
			sent, since = now, time.Now()
		}
		return sent > 0 && time.Since(since) > 500*time.Millisecond
	})
	growth := peakMemory(t, proxy) - before
	t.Logf("%d streams stand after %d MiB, for %d MiB of the proxy's memory", clients, sent>>20, growth>>20)
	require.Less(t, growth, 64*mib)
	require.Equal(t, clients, running(n.engine.Witness()), "none was given up")

	n.engine.SetPace(engine.Pace{})
	n.requireServed(11434) // nobody else is held up
	for _, conn := range conns {
		require.NoError(t, conn.Close())
	}
	n.awaitEngine("all clients have left", func(r engine.Report) bool { return running(r) == 0 })
	require.Equal(t, map[string]int{"cancelled": clients, "completed": 1}, n.jobs.awaitEnded(t, clients+1))
}
