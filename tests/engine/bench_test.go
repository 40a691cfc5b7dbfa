// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
)

// benchClients is how many kept connections ask at once.
const benchClients = 16

// BenchmarkWhole is a chat that is not streamed, BenchmarkStream one of 16 chunks;
// their clients do as little as they can, so that the engine is what is measured.
func BenchmarkWhole(b *testing.B) { benchRaw(b, Pace{}, false) }

func BenchmarkStream(b *testing.B) { benchRaw(b, Pace{}, true) }

func BenchmarkStreamJoined(b *testing.B) { benchRaw(b, Pace{Joined: true}, true) }

// BenchmarkWholeNetHTTP has net/http for its clients, as a suite would.
func BenchmarkWholeNetHTTP(b *testing.B) {
	e := StartTest(b, Config{})
	transport := &http.Transport{MaxIdleConnsPerHost: benchClients}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	body := `{"model":"demo",` + hi + `,"stream":false}`
	b.ReportAllocs()
	inParallel(b, func(n int) error {
		for range n {
			res, err := client.Post(e.URL()+"/api/chat", typeJSON, bytes.NewReader([]byte(body)))
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// inParallel splits b.N among the clients.
func inParallel(b *testing.B, work func(n int) error) {
	b.Helper()
	var wg sync.WaitGroup
	b.ResetTimer()
	for i := range benchClients {
		wg.Go(func() {
			n := b.N / benchClients
			if i < b.N%benchClients {
				n++
			}
			if err := work(n); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
}

func benchRaw(b *testing.B, pace Pace, stream bool) {
	e := StartTest(b, Config{Pace: pace})
	body := fmt.Sprintf(`{"model":"demo",%s,"stream":%t}`, hi, stream)
	request := fmt.Appendf(nil, "POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	end := []byte("}")
	if stream {
		end = []byte("0\r\n\r\n")
	}
	b.ReportAllocs()
	inParallel(b, func(n int) error {
		nc, err := net.Dial("tcp", e.Addr())
		if err != nil {
			return err
		}
		defer func() { _ = nc.Close() }()
		r := bufio.NewReaderSize(nc, 64<<10)
		for range n {
			if _, err := nc.Write(request); err != nil {
				return err
			}
			if err := readUntil(r, end); err != nil {
				return err
			}
		}
		return nil
	})
}

// readUntil reads one answer whose last bytes are end.
func readUntil(r *bufio.Reader, end []byte) error {
	for {
		if _, err := r.Peek(1); err != nil {
			return err
		}
		have, _ := r.Peek(r.Buffered())
		done := bytes.HasSuffix(have, end)
		if _, err := r.Discard(len(have)); err != nil || done {
			return err
		}
	}
}
