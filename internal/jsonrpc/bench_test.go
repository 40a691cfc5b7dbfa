// SPDX-License-Identifier: Apache-2.0

package jsonrpc

import (
	"bufio"
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func BenchmarkParsePing(b *testing.B) {
	line := []byte(`{"jsonrpc":"2.0","id":12345,"method":"log/ping","params":{"at":1700000000000}}`)
	benchmarkParse(b, line)
}

func BenchmarkParse880k(b *testing.B) {
	const record = `{"id":"8c1d5e9e-0000-4000-8000-5a2f5a2f5a2f","name":"node \"é\"","addresses":["192.168.1.17"],"seq":17},`
	const size = 880_000
	line := `{"jsonrpc":"2.0","method":"nodes","params":[` + strings.Repeat(record, size/len(record)) + `0]}`
	benchmarkParse(b, []byte(line))
}

func benchmarkParse(b *testing.B, line []byte) {
	b.ReportAllocs()
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if _, err := parseFrame(line); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadLine880k(b *testing.B) {
	input := append(bytes.Repeat([]byte("x"), 880_000), '\n')
	b.ReportAllocs()
	b.SetBytes(int64(len(input)))
	for b.Loop() {
		if _, err := newLineReader(bytes.NewReader(input), DefaultMaxFrameBytes).next(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPingPipelined is the server side under a client that never waits.
func BenchmarkPingPipelined(b *testing.B) {
	near, far := osPipes(b)
	serve(b, near, Config{Handle: echo})
	b.ReportAllocs()
	b.ResetTimer()
	go func() {
		w := bufio.NewWriterSize(far, 64<<10)
		var frame []byte
		for i := range b.N {
			frame = append(frame[:0], `{"jsonrpc":"2.0","id":`...)
			frame = strconv.AppendInt(frame, int64(i), 10)
			_, _ = w.Write(append(frame, `,"method":"ping"}`+"\n"...))
		}
		_ = w.Flush()
	}()
	answers := bufio.NewReaderSize(far, 64<<10)
	for range b.N {
		if _, err := answers.ReadSlice('\n'); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pings/s")
}

// BenchmarkRoundTrip is one call at a time between two Conns.
func BenchmarkRoundTrip(b *testing.B) {
	near, far := osPipes(b)
	serve(b, near, Config{Handle: echo})
	s := serve(b, far, Config{})
	params := rawJSON(`{"a":1}`)
	b.ReportAllocs()
	for b.Loop() {
		_, err := s.Call(b.Context(), "ping", params)
		require.NoError(b, err)
	}
}

func BenchmarkReply(b *testing.B) {
	c := unserved(Config{Handle: echo})
	line := []byte(`{"jsonrpc":"2.0","id":12345,"method":"ping","params":{"a":1}}`)
	b.ReportAllocs()
	for b.Loop() {
		c.dispatch(line)
		c.out.buf, c.out.responses = c.out.buf[:0], 0
	}
}
