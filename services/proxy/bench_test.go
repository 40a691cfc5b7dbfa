// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/worker"
	"nvpair/tests/bench/load"
)

// The benchmarks are for profiles of the proxy under the load of tests/bench,
// whose client and stand-in share its process here:
//
//	go test -run '^$' -bench JSONAnswer -cpuprofile cpu.out ./services/proxy/

func BenchmarkJSONAnswer(b *testing.B) { benchmarkAnswers(b, load.KindJSON, 16, 200) }

func BenchmarkStream64(b *testing.B) { benchmarkAnswers(b, load.KindStream, 16, 200) }

func BenchmarkPrompt200k(b *testing.B) { benchmarkAnswers(b, load.KindJSON, 4, 200_000) }

// benchmarkAnswers sends b.N requests by that many clients at once.
func benchmarkAnswers(b *testing.B, kind string, clients, bodyBytes int) {
	clients = min(clients, b.N)
	c := load.Cell{
		Addr: startLoaded(b), Kind: kind, BodyBytes: bodyBytes, Clients: clients, Warm: 1,
		For: time.Hour, Limit: (b.N + clients - 1) / clients,
	}
	b.ReportAllocs()
	b.ResetTimer()
	r := c.Run(nil)
	b.StopTimer()
	require.Zero(b, r.Failures, r.Failure)
	b.ReportMetric(r.Rate(), "answers/s")
}

// startLoaded starts a proxy before the stand-in for an engine and returns the
// facade's address. Nobody decodes what it writes on its link.
func startLoaded(b *testing.B) string {
	b.Helper()
	var parts sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(func() { cancel(); parts.Wait() })
	engine, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	parts.Go(func() {
		if err := load.Serve(ctx, engine); err != nil {
			b.Error(err)
		}
	})
	ours, theirs := pipes(b)
	cfg := Config{DataDir: b.TempDir(), Config: worker.Config{
		Link: theirs, Version: "test", Log: slog.New(slog.DiscardHandler), Level: new(slog.LevelVar),
	}}
	parts.Go(func() {
		if err := Run(ctx, cfg); err != nil {
			b.Error(err)
		}
		_ = theirs.Close()
	})
	lines := bufio.NewReader(ours)
	facade, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	addr := facade.Addr().(*net.TCPAddr)
	require.NoError(b, facade.Close())
	tell(b, ours, lines, `"facade/enable","params":{"engine":"ollama","ignorePersistedPort":true,"hostUuid":"self","port":%d}`,
		addr.Port)
	tell(b, ours, lines, `"ollama:node/set-local-backend","params":{"healthy":true,"port":%d}`,
		engine.Addr().(*net.TCPAddr).Port)
	parts.Go(func() { _, _ = io.Copy(io.Discard, lines); _ = ours.Close() })
	return addr.String()
}

// tell makes a call on a bare link and waits for its answer.
func tell(b *testing.B, link io.Writer, lines *bufio.Reader, format string, port int) {
	b.Helper()
	_, err := fmt.Fprintf(link, `{"jsonrpc":"2.0","id":1,"method":`+format+"}\n", port)
	require.NoError(b, err)
	for {
		line, err := lines.ReadString('\n')
		require.NoError(b, err)
		if strings.HasPrefix(line, `{"jsonrpc":"2.0","id":1,`) {
			require.Contains(b, line, `"result"`)
			return
		}
	}
}

// pipeEnd is one end of a link as a worker's standard streams are.
type pipeEnd struct{ in, out *os.File }

func (p pipeEnd) Read(b []byte) (int, error)  { return p.in.Read(b) }
func (p pipeEnd) Write(b []byte) (int, error) { return p.out.Write(b) }
func (p pipeEnd) Close() error                { return errors.Join(p.in.Close(), p.out.Close()) }

func pipes(b *testing.B) (ours, theirs pipeEnd) {
	b.Helper()
	var err error
	ours.in, theirs.out, err = os.Pipe()
	require.NoError(b, err)
	theirs.in, ours.out, err = os.Pipe()
	require.NoError(b, err)
	return ours, theirs
}
