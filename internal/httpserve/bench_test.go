// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each benchmark sends its requests in turns, a batch to a Server and a batch to
// net/http's, so that both meet the same machine. It reports time and allocations
// of a request to each, the client's included, which knows the answer's length and
// allocates nothing.

func BenchmarkSmallAnswers(b *testing.B) {
	answer := []byte(`{"id":"x","choices":[{"message":{"content":"` + strings.Repeat("t", 400) + `"}}]}`)
	handle := func(w http.ResponseWriter, r *http.Request) {
		var buf [1024]byte
		for {
			if _, err := r.Body.Read(buf[:]); err != nil {
				break
			}
		}
		w.Header()["Content-Type"] = jsonType
		_, _ = w.Write(answer)
	}
	for _, clients := range []int{1, 16} {
		b.Run(fmt.Sprint("clients=", clients), func(b *testing.B) { compareServers(b, clients, 64, handle) })
	}
}

var jsonType = []string{"application/json"}

func BenchmarkStreamsOf64Flushes(b *testing.B) {
	chunk := []byte("data: {\"choices\":[{\"delta\":{\"content\":\"token\"}}]}\n\n")
	compareServers(b, 1, 8, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header()["Content-Type"] = jsonType
		for range 64 {
			_, _ = w.Write(chunk)
			w.(http.Flusher).Flush()
		}
	})
}

func compareServers(b *testing.B, clients, batch int, handle http.HandlerFunc) {
	body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("q", 200) + `"}]}`
	request := []byte(fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost:11434\r\nUser-Agent: bench\r\n"+
		"Accept: */*\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
	ours := &Server{Handler: handle, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 90 * time.Second}
	theirs := &http.Server{Handler: handle, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 90 * time.Second}
	senders := [2]func(){
		sender(b, ours.Serve, ours.Close, clients, batch, request),
		sender(b, theirs.Serve, theirs.Close, clients, batch, request),
	}
	var spent [2]time.Duration
	var allocs [2]uint64
	var before, after runtime.MemStats
	for b.Loop() {
		for i, send := range senders {
			runtime.ReadMemStats(&before)
			began := time.Now()
			send()
			spent[i] += time.Since(began)
			runtime.ReadMemStats(&after)
			allocs[i] += after.Mallocs - before.Mallocs
		}
	}
	requests := float64(b.N * batch * clients)
	for i, name := range []string{"ours", "nethttp"} {
		b.ReportMetric(float64(spent[i].Nanoseconds())/1e3/requests, name+"-µs/req")
		b.ReportMetric(float64(allocs[i])/requests, name+"-allocs/req")
	}
	b.ReportMetric(float64(spent[1])/float64(spent[0]), "ratio")
}

// sender starts a server and returns what sends it a batch from each client.
func sender(b *testing.B, serve func(net.Listener) error, stop func() error, clients, batch int, request []byte) func() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := serve(ln); !errors.Is(err, http.ErrServerClosed) {
			b.Error(err)
		}
	})
	conns := make([]*client, clients)
	var length int
	for i := range conns {
		conns[i] = dial(b, ln.Addr().String())
		require.NoError(b, conns[i].SetDeadline(time.Time{}))
		length = conns[i].measure(request)
	}
	b.Cleanup(func() {
		for _, c := range conns {
			_ = c.Close()
		}
		_ = stop()
		serving.Wait()
	})
	return func() {
		var all sync.WaitGroup
		for _, c := range conns {
			all.Go(func() {
				for range batch {
					if err := c.exchange(request, length); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
	}
}

// measure returns the length of an answer, head and framing included.
func (c *client) measure(request []byte) int {
	_, err := c.Conn.Write(request)
	require.NoError(c.t, err)
	var seen bytes.Buffer
	c.in.Reset(io.TeeReader(c.Conn, &seen))
	c.answer("POST")
	c.in.Reset(c.Conn)
	return seen.Len()
}

func (c *client) exchange(request []byte, length int) error {
	if _, err := c.Conn.Write(request); err != nil {
		return err
	}
	_, err := c.in.Discard(length)
	return err
}
