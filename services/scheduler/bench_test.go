// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/worker"
	"nvpair/shared/schedule"
)

// benchJobs is how many jobs are pending while a benchmark runs (DEC-137).
const benchJobs = 10_000

func benchNode(i int) string {
	return fmt.Sprintf("8c1d5e9e-0000-4000-8000-%012d", i%schedule.MaxNodes)
}

// transition is the frame of job i on its way: it is placed, runs and moves from
// node to node.
func transition(i, node int, state string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"workloads:upsert","params":{"workloadInfo":{"id":"%d",`+
		`"model":"llama3.2:3b-instruct-q4_K_M","engine":"ollama","runId":"5f0c2a9e1b7d4c33","state":%q,`+
		`"originatedFrom":%q,"scheduledOn":%q,"createdAt":1700000000000,"startedAt":1700000000500,"completedAt":null,`+
		`"error":null,"requesterId":null,"seq":3}}}`+"\n", i, state, benchNode(i*7), benchNode(node))
}

// transitions are frames of which each changes the counts of two nodes, in a
// cycle: every job ends where it began. They leave probeNode alone.
func transitions() [][]byte {
	var out, back [][]byte
	for i := range 1000 {
		if i%schedule.MaxNodes == probeNode || (i+1)%schedule.MaxNodes == probeNode {
			continue
		}
		out = append(out, transition(i, i+1, "running"))
		back = append(back, transition(i, i, "running"))
	}
	return slices.Concat(out, back)
}

// setup are frames that make 10,000 jobs and 512 nodes known.
func setup() []byte {
	var b bytes.Buffer
	for i := range benchJobs {
		b.Write(transition(i, i, "running"))
	}
	b.WriteString(`{"jsonrpc":"2.0","method":"discovery:nodes-changed","params":[{"hostUuid":"` + benchNode(0) + `"}`)
	for i := range schedule.MaxNodes {
		fmt.Fprintf(&b, `,{"hostUuid":%q,"ipAddress":"192.168.1.17","models":["a","b","c"]}`, benchNode(i))
	}
	b.WriteString("]}\n")
	return b.Bytes()
}

// startLoaded runs a worker that knows 512 nodes and 10,000 jobs and returns the
// other end of its link, whose output is thrown away.
func startLoaded(b *testing.B) net.Conn {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	ours, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(b, err)
	theirs, err := ln.Accept()
	require.NoError(b, err)
	_ = ln.Close()
	s := newService(Config{Config: worker.Config{
		Link: theirs, Version: "1.2.3", Log: slog.New(slog.DiscardHandler), Level: new(slog.LevelVar),
	}})
	var ends sync.WaitGroup
	ends.Go(func() { s.run(b.Context()) })
	b.Cleanup(func() { _ = ours.Close(); ends.Wait() })
	_, err = ours.Write(append(setup(), `{"jsonrpc":"2.0","id":1,"method":"scheduler:get-interval"}`+"\n"...))
	require.NoError(b, err)
	lines := bufio.NewReader(ours)
	for line := ""; !strings.Contains(line, `"id":1,`); { // the answer comes when all is applied
		line, err = lines.ReadString('\n')
		require.NoError(b, err)
	}
	ends.Go(func() { _, _ = io.Copy(io.Discard, lines) })
	return ours
}

// BenchmarkTransitionsOnTheLink is a transition from the bytes on the link to the
// count of its node, with the output at its full pace beside it.
func BenchmarkTransitionsOnTheLink(b *testing.B) {
	link := startLoaded(b)
	frames := transitions()
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		_, _ = link.Write(frames[i%len(frames)])
	}
}

// BenchmarkTransitionsDecode is the part of it that is this package's.
func BenchmarkTransitionsDecode(b *testing.B) {
	frame := transition(17, 17, "running")
	params := frame[bytes.Index(frame, []byte(`"params":`))+len(`"params":`) : len(frame)-2]
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeJob(params); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTransitionsApply(b *testing.B) {
	v := loadedView(b)
	jobs := movingJobs()
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		_, _ = v.upsert(jobs[i%len(jobs)])
	}
}

// BenchmarkTransitionsOutput is what one window costs: a ranking of 512 nodes
// after 40 transitions, and its two frames' params.
func BenchmarkTransitionsOutput(b *testing.B) {
	s := newService(Config{Config: worker.Config{
		Link: nopLink{}, Version: "1.2.3", Log: slog.New(slog.DiscardHandler), Level: new(slog.LevelVar),
	}})
	s.view = *loadedView(b)
	jobs := movingJobs()
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		for range 40 {
			i++
			_, _ = s.view.upsert(jobs[i%len(jobs)])
		}
		for engine := range s.outputs {
			if _, some := s.snapshot(engine); !some {
				b.Fatal("nothing to send")
			}
		}
		s.wrote(true)
	}
}

type nopLink struct{ io.ReadWriteCloser }

func benchJob(i, node int) job {
	return job{id: strconv.Itoa(i), engine: "ollama", runID: "r", origin: "o", state: "running", node: benchNode(node)}
}

// movingJobs are jobs to apply one after the other, in a cycle. Nearly every one
// moves its job to another node.
func movingJobs() []job {
	var jobs []job
	for i := range 2*benchJobs + 1 {
		jobs = append(jobs, benchJob(i%benchJobs, i*31))
	}
	return jobs
}

func loadedView(b *testing.B) *view {
	b.Helper()
	v := newView()
	var ids []string
	for i := range schedule.MaxNodes {
		ids = append(ids, benchNode(i))
	}
	_, err := v.setNodes(ids, time.Now())
	require.NoError(b, err)
	for i := range benchJobs {
		_, err := v.upsert(benchJob(i, i))
		require.NoError(b, err)
	}
	return &v
}
