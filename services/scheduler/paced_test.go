// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkTransitionsPaced sends a process of the worker 1,000 transitions a
// second for b.N seconds, one at a time or as the broker batches them (DEC-131).
// It reports the share of a core that they cost the process and how long a
// transition took until a ranking that shows it had been read. Run it with
// -benchtime 10x.
func BenchmarkTransitionsPaced(b *testing.B) {
	for _, every := range []time.Duration{time.Millisecond, 2 * time.Millisecond} {
		b.Run("every="+every.String(), func(b *testing.B) {
			before := runPaced(b, every, 0, &probe{})
			seen := &probe{}
			b.ResetTimer()
			cost := runPaced(b, every, b.N, seen) - before
			seen.mu.Lock()
			defer seen.mu.Unlock()
			require.Equal(b, len(seen.sent), seen.shown)
			b.ReportMetric(100*cost.Seconds()/float64(b.N), "%core")
			b.ReportMetric(seen.worst.Seconds()*1000, "ms-worst")
			b.ReportMetric(seen.total.Seconds()*1000/float64(seen.shown), "ms-mean")
			b.ReportMetric(float64(seen.outputs)/float64(b.N), "outputs/s")
		})
	}
}

// runPaced runs the worker for that long and returns the CPU time of its life.
func runPaced(b *testing.B, every time.Duration, seconds int, seen *probe) time.Duration {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), playWorker+"=1")
	in, err := cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	var reader sync.WaitGroup
	reader.Go(func() { seen.read(out) })
	_, err = in.Write(setup())
	require.NoError(b, err)
	pace(in, every, seconds, seen)
	<-time.After(200 * time.Millisecond) // for the last output
	_ = in.Close()
	reader.Wait()
	require.NoError(b, cmd.Wait())
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// pace sends what is due, with one write each time: of a thousand frames a second
// ten are the probe's.
func pace(link io.Writer, every time.Duration, seconds int, seen *probe) {
	<-time.After(300 * time.Millisecond) // set-up
	frames := transitions()
	begin := time.Now()
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	var batch []byte
	for sent := 0; sent < 1000*seconds; <-ticks.C {
		batch = batch[:0]
		for due := int(time.Since(begin) / time.Millisecond); sent < due; sent++ {
			if sent%97 == 0 {
				batch = append(batch, seen.frame()...)
				continue
			}
			batch = append(batch, frames[sent%len(frames)]...)
		}
		_, _ = link.Write(batch)
	}
}

// probe moves a further job to one node from time to time and waits for the ranking
// of the first engine that counts it.
type probe struct {
	mu      sync.Mutex  // guards the rest
	sent    []time.Time // when the probe's jobs 1, 2, ... were sent
	shown   int         // how many of them some ranking has shown
	first   int         // jobs of the node before
	outputs int         // rankings since the first was sent
	worst   time.Duration
	total   time.Duration // of those shown
}

const probeNode = 300

// frame is the next job's, to be sent at once.
func (p *probe) frame() []byte {
	p.mu.Lock()
	next := 1024 + len(p.sent) // a job of node 0, then of 1, ... that nothing else moves
	p.sent = append(p.sent, time.Now())
	p.mu.Unlock()
	if next-1024 >= probeNode {
		next++
	}
	return transition(next, probeNode, "running")
}

func (p *probe) read(r io.Reader) {
	marker := []byte(`{"id":"` + benchNode(probeNode) + `","pending":`)
	lines := bufio.NewReaderSize(r, 1<<20)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return
		}
		if !bytes.Contains(line[:min(len(line), 100)], []byte(`"ollama"`)) {
			continue
		}
		_, rest, _ := bytes.Cut(line, marker)
		digits, _, _ := bytes.Cut(rest, []byte(","))
		if pending, err := strconv.Atoi(string(digits)); err == nil {
			p.saw(pending)
		}
	}
}

func (p *probe) saw(pending int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.sent) == 0 {
		p.first = pending
		return
	}
	p.outputs++
	for ; p.shown < min(pending-p.first, len(p.sent)); p.shown++ {
		took := time.Since(p.sent[p.shown])
		p.worst, p.total = max(p.worst, took), p.total+took
	}
}
