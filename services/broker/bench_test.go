// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"

	"nvpair/internal/jsonrpc"
	"nvpair/internal/supervise"
	"nvpair/services/broker/jobs"
)

// sinkhole is a stream that takes everything and says nothing.
type sinkhole struct {
	once   sync.Once // closes closed
	closed chan struct{}
}

func newSinkhole() *sinkhole { return &sinkhole{closed: make(chan struct{})} }

func (s *sinkhole) Write(b []byte) (int, error) { return len(b), nil }

func (s *sinkhole) Read([]byte) (int, error) {
	<-s.closed
	return 0, io.EOF
}

func (s *sinkhole) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// BenchmarkJobEvent is one event of this node's proxy from its frame's params to
// the queues of scheduler, client and workload manager, among 10,000 open and
// 10,000 finished jobs. 1,000 a second is 1 ms each.
func BenchmarkJobEvent(b *testing.B) {
	cfg := Config{
		Client: newSinkhole(), Stderr: io.Discard, NodeID: nodeID, DataDir: b.TempDir(),
		Log: slog.New(slog.DiscardHandler), Level: new(slog.LevelVar),
	}
	cfg.setDefaults()
	ctx, cancel := context.WithCancel(b.Context())
	br := newBroker(cfg, cancel)
	br.client.workloads.Store(true)
	var wg sync.WaitGroup
	wg.Go(func() { br.client.serve(ctx) })
	links := map[string]*workerLink{}
	for _, name := range []string{workerScheduler, workerWorkloads, workerProxy} {
		l := newWorkerLink(br, br.byName[name], &supervise.Process{Generation: 1}, newSinkhole())
		links[name] = l
		wg.Go(func() { l.Serve(ctx) })
	}
	apply := func(params string) {
		br.fromProxyJobs(links[workerProxy], &jsonrpc.Request{Method: "workload:started", Params: []byte(params)})
	}
	for n := range 9_000 {
		apply(`{"workloadInfo":` + jobOf("", "open"+strconv.Itoa(n), "running", "") + `}`)
		apply(`{"workloadInfo":` + jobOf("", "done"+strconv.Itoa(n), "completed", "") + `}`)
	}
	states := []string{"queued", "running", "completed"}
	runs := 0
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if n%len(states) == 0 {
			runs++
		}
		info := jobOf("", "j", states[n%len(states)], `,"seq":`+strconv.Itoa(n%len(states)+1)+`,"scheduledOn":"`+otherNode+`"`)
		apply(`{"workloadInfo":` + strings.Replace(info, "r1", strconv.Itoa(runs), 1) + `}`)
	}
	b.StopTimer()
	if open := len(br.workloads.index.Of(jobs.FromProxy(1))); open < 9_000 {
		b.Fatalf("%d open jobs", open)
	}
	cancel()
	for _, l := range links {
		l.CloseWrite()
	}
	wg.Wait()
}
