// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"nvpair/shared/schedule"
	"nvpair/tests/harness"
)

const (
	schedulerJobs    = 10_000
	schedulerFor     = 10 * time.Second
	transitionsEvery = time.Millisecond
	probeEvery       = 5   // of that many transitions one is timed
	probeNode        = 300 // timed jobs move here, others never
)

func schedulerNode(i int) string {
	return fmt.Sprintf("8c1d5e9e-0000-4000-8000-%012d", i%schedule.MaxNodes)
}

// transition is the frame that puts a running job on a node.
func transition(job, node int) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"workloads:upsert","params":{"workloadInfo":{"id":"%d",`+
		`"model":"llama3.2:3b-instruct-q4_K_M","engine":"ollama","runId":"5f0c2a9e1b7d4c33","state":"running",`+
		`"originatedFrom":%q,"scheduledOn":%q,"createdAt":1700000000000,"startedAt":1700000000500,"completedAt":null,`+
		`"error":null,"requesterId":null,"seq":3}}}`+"\n", job, schedulerNode(job*7), schedulerNode(node))
}

// knownToScheduler are frames that make 512 nodes and 10,000 jobs known, spread evenly.
func knownToScheduler() []byte {
	var b bytes.Buffer
	for i := range schedulerJobs {
		b.Write(transition(i, i))
	}
	b.WriteString(`{"jsonrpc":"2.0","method":"discovery:nodes-changed","params":[`)
	for i := range schedule.MaxNodes {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"hostUuid":%q,"ipAddress":"192.168.1.17","models":["a","b","c"]}`, schedulerNode(i))
	}
	b.WriteString("]}\n")
	return b.Bytes()
}

// moves returns what is sent: the first 1,000 jobs go to the next node, then back, again and again.
func moves() [][]byte {
	var out, back [][]byte
	for i := range 1000 {
		if i%schedule.MaxNodes != probeNode && (i+1)%schedule.MaxNodes != probeNode {
			out, back = append(out, transition(i, i+1)), append(back, transition(i, i))
		}
	}
	return slices.Concat(out, back)
}

// probes returns the timed moves: each takes a job that nothing else moves to the probe's node.
func probes() [][]byte {
	var list [][]byte
	for i := 2 * schedule.MaxNodes; i < schedulerJobs; i++ {
		if i%schedule.MaxNodes != probeNode {
			list = append(list, transition(i, probeNode))
		}
	}
	return list
}

// measureScheduler sends the shipped scheduler 1,000 transitions a second, one by one, and reads its rankings.
func measureScheduler(t *testing.T) []figure {
	t.Helper()
	h := harness.NewHost(t, "scheduler")
	p := start(t, h, "nvpair-job-scheduler")
	if _, err := p.stdin.Write(knownToScheduler()); err != nil {
		t.Fatal(err)
	}
	p.within(callWithin)
	if _, _, err := p.call("scheduler:get-interval", ""); err != nil { // is answered when all that is applied
		t.Fatal(err)
	}
	p.rest(t, time.Second) // for the last ranking of it
	seen := &shown{start: (schedulerJobs - probeNode + schedule.MaxNodes - 1) / schedule.MaxNodes}
	reading := make(chan struct{})
	_ = p.wire.stop.SetReadDeadline(time.Time{})
	go func() { defer close(reading); seen.read(p.r) }() // ends with the process
	before, err := readActivity(p.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	seen.pace(t, p)
	p.rest(t, 200*time.Millisecond) // for the last output
	after, err := readActivity(p.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	p.stop(t, h)
	<-reading
	return seen.figures(t, took, after.cpu-before.cpu)
}

// shown are the timed moves on their way into a ranking.
type shown struct {
	mu      sync.Mutex  // guards the rest
	sent    []time.Time // when each was sent
	took    samples     // of those that a ranking has shown
	start   int         // jobs of the node before them
	outputs int
}

// pace sends what is due, one write a frame.
func (s *shown) pace(t *testing.T, p *program) {
	t.Helper()
	plain, timed := moves(), probes()
	ticks := time.NewTicker(transitionsEvery)
	defer ticks.Stop()
	began := time.Now()
	for sent := 0; sent < int(schedulerFor/transitionsEvery); <-ticks.C {
		for due := int(time.Since(began) / transitionsEvery); sent < due; sent++ {
			next := plain[sent%len(plain)]
			if sent%probeEvery == 0 {
				next = timed[sent/probeEvery]
				s.mu.Lock()
				s.sent = append(s.sent, time.Now())
				s.mu.Unlock()
			}
			if _, err := p.stdin.Write(next); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (s *shown) read(lines *bufio.Reader) {
	marker := []byte(`{"id":"` + schedulerNode(probeNode) + `","pending":`)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return
		}
		if !bytes.Contains(line[:min(len(line), 100)], []byte(`"engine":"ollama"`)) {
			continue
		}
		_, rest, _ := bytes.Cut(line, marker)
		digits, _, _ := bytes.Cut(rest, []byte(","))
		if pending, err := strconv.Atoi(string(digits)); err == nil {
			s.saw(pending)
		}
	}
}

// saw takes a ranking in which the probe's node has that many jobs.
func (s *shown) saw(pending int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sent) > 0 {
		s.outputs++
	}
	for len(s.took) < min(pending-s.start, len(s.sent)) {
		s.took = append(s.took, time.Since(s.sent[len(s.took)]))
	}
}

func (s *shown) figures(t *testing.T, took, cpu time.Duration) []figure {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.took) != len(s.sent) {
		t.Fatalf("rankings showed %d of %d timed moves", len(s.took), len(s.sent))
	}
	const hint = "services/scheduler/README.md: cost"
	return []figure{
		{"scheduler, CPU of a core", 100 * cpu.Seconds() / took.Seconds(), "%", fmt.Sprintf("%d nodes, %d jobs, a move each %v, "+
			"%.1f outputs/s", schedule.MaxNodes, schedulerJobs, transitionsEvery, float64(s.outputs)/took.Seconds()),
			atMost(10), hint},
		{"scheduler, move to output, p99", ms(s.took.quantile(0.99)), "ms", fmt.Sprintf("p50 %.1f ms of %d", ms(s.took.median()),
			len(s.took)), atMost(50), hint},
		{"scheduler, move to output, max", ms(slices.Max(s.took)), "ms", "", atMost(50),
			"one long wait, with p99 far below it, is mostly the machine's"},
	}
}
