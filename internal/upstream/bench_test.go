// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Each benchmark sends its requests in turns, a batch with a Pool and a batch
// with net/http's transport, so that both meet the same machine. It reports the
// time of each and the ratio: above 1 the pool is faster.

func BenchmarkSmallAnswers(b *testing.B) {
	answer := []byte(`{"id":"x","choices":[{"message":{"content":"` + strings.Repeat("t", 400) + `"}}]}`)
	compare(b, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	})
}

func BenchmarkStreamsOf64Chunks(b *testing.B) {
	chunk := []byte("data: {\"choices\":[{\"delta\":{\"content\":\"token\"}}]}\n\n")
	compare(b, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for range 64 {
			_, _ = w.Write(chunk)
			w.(http.Flusher).Flush()
		}
	})
}

func compare(b *testing.B, handle http.HandlerFunc) {
	const batch = 20
	s := httptest.NewServer(handle)
	defer s.Close()
	addr := s.Listener.Addr().String()
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("q", 500) + `"}]}`)
	header := http.Header{"Content-Type": {"application/json"}, "User-Agent": {"bench"}}
	pool := NewPool(Config{})
	defer pool.Close()
	transport := &http.Transport{
		DialContext: (&net.Dialer{}).DialContext, DisableCompression: true, MaxIdleConnsPerHost: 64,
	}
	defer transport.CloseIdleConnections()

	ours := func(ctx context.Context, buf []byte) error {
		resp, err := pool.Do(ctx, &Request{
			Addr: addr, Host: addr, Method: http.MethodPost, Target: "/v1/chat/completions", Header: header, Body: body,
		})
		return drain(resp, err, buf)
	}
	theirs := func(ctx context.Context, buf []byte) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/v1/chat/completions", bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header = header
		resp, err := transport.RoundTrip(req)
		return drain(&Response{Response: resp}, err, buf)
	}
	spent := [2]time.Duration{}
	buf := make([]byte, 32<<10)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		for i, send := range []func(context.Context, []byte) error{ours, theirs} {
			began := time.Now()
			for range batch {
				if err := send(ctx, buf); err != nil {
					b.Fatal(err)
				}
			}
			spent[i] += time.Since(began)
		}
	}
	requests := float64(b.N * batch)
	b.ReportMetric(float64(spent[0].Microseconds())/requests, "pool-µs/req")
	b.ReportMetric(float64(spent[1].Microseconds())/requests, "transport-µs/req")
	b.ReportMetric(float64(spent[1])/float64(spent[0]), "ratio")
}

// drain reads an answer to its end, as a proxy does.
func drain(resp *Response, err error, buf []byte) error {
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Response.Body, buf)
	_ = resp.Response.Body.Close()
	return err
}
