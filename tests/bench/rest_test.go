// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"nvpair/shared/engine"
	"nvpair/tests/harness"
)

const (
	restBefore = 30 * time.Second // until the idle tree is looked at
	restFor    = time.Minute      // over which it is watched
)

// Where to look when the idle tree costs too much.
const (
	memoryHint = "ANON above is heap, stacks and runtime, FILE the shared image; README.md: heap of an idle process"
	cpuHint    = "README.md: what wakes an idle process"
)

// measureRest watches a tree of its own with a client that has subscribed to everything, and returns the figures and
// the processes, the one with the most memory first.
func measureRest(t *testing.T, h *harness.Host) ([]figure, []resting) {
	t.Helper()
	p, _ := startBroker(t, h)
	workers := awaitWorkers(t, p)
	p.subscribe(t)
	p.rest(t, restBefore)
	if err := p.drain(); err != nil {
		t.Fatal(err)
	}
	processes, files := look(t, h)
	p.rest(t, restFor)
	lookAgain(t, h, processes)
	after, err := filesOf(h.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	notifications, err := p.arrived()
	if err != nil {
		t.Fatal(err)
	}
	p.stop(t, h)
	slices.SortFunc(processes, func(a, b resting) int { return -cmp.Compare(a.pss, b.pss) })
	figures := append(memoryFigures(processes), cpuFigures(processes, workers)...)
	changed := changes(files, after)
	return append(figures,
		figure{"files written at rest", float64(len(changed)), "", fmt.Sprintf("in %v, of %d", restFor, len(files)),
			atMost(0), fmt.Sprint(changed)},
		figure{"notifications at rest", float64(bytes.Count(notifications, []byte("\n"))), "", fmt.Sprintf("in %v", restFor),
			atMost(0), fmt.Sprintf("%.500s", notifications)}), processes
}

// subscribe asks for every notification there is.
func (p *program) subscribe(t *testing.T) {
	t.Helper()
	namespaces := []string{"discovery", "engine", "workloads"}
	for _, e := range engine.All() {
		namespaces = append(namespaces, e.Proxy())
	}
	for _, namespace := range namespaces {
		if _, _, err := p.call(namespace+":subscribe", ""); err != nil {
			t.Fatal(err)
		}
	}
}

// look takes the first reading of every process and of the data directory.
func look(t *testing.T, h *harness.Host) ([]resting, map[string]string) {
	t.Helper()
	var processes []resting
	for _, info := range h.Processes() {
		m, err := readMemory(info.PID)
		if err != nil {
			t.Fatal(err)
		}
		processes = append(processes, resting{ProcInfo: info, memory: m})
	}
	files, err := filesOf(h.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range processes { // last, so that no other reading is inside the measured time
		if processes[i].first, err = readActivity(processes[i].PID); err != nil {
			t.Fatal(err)
		}
	}
	return processes, files
}

// lookAgain takes the second reading of the same processes, which must still be all.
func lookAgain(t *testing.T, h *harness.Host, processes []resting) {
	t.Helper()
	var err error
	for i := range processes {
		if processes[i].last, err = readActivity(processes[i].PID); err != nil {
			t.Fatal(err)
		}
	}
	if now := len(h.Processes()); now != len(processes) {
		t.Fatalf("%d processes after %v of rest, %d before", now, restFor, len(processes))
	}
}

func memoryFigures(processes []resting) []figure {
	second, sum := 0.0, 0.0
	if len(processes) > 1 {
		second = processes[1].pss
	}
	for _, p := range processes {
		sum += p.pss
	}
	return []figure{
		{"memory at rest, largest process", processes[0].pss / 1e6, "MB", processes[0].Name + ", PSS", atMost(15),
			memoryHint},
		{"memory at rest, next largest", second / 1e6, "MB", "PSS", atMost(6), memoryHint},
		{"memory at rest, all processes", sum / 1e6, "MB", fmt.Sprintf("%d processes, PSS", len(processes)), noBar(), ""},
	}
}

func cpuFigures(processes []resting, workers int) []figure {
	busiest := slices.MaxFunc(processes, func(a, b resting) int { return cmp.Compare(a.cpu(), b.cpu()) })
	var sum, waits float64
	for _, p := range processes {
		sum += p.share(restFor)
		waits += p.last.wakeups - p.first.wakeups
	}
	return []figure{
		{"CPU at rest, a worker", sum / float64(workers), "%", "whole tree divided by its workers", atMost(0.1), cpuHint},
		{"CPU at rest, busiest process", busiest.share(restFor), "%", busiest.Name, atMost(0.1), cpuHint},
		{"wake-ups at rest, whole tree", waits / restFor.Seconds(), "/s", "waits begun by its threads", noBar(), ""},
	}
}

// arrived returns what has arrived and was not read yet.
func (p *program) arrived() ([]byte, error) {
	var all []byte
	for {
		p.within(10 * time.Millisecond) // nothing to wait for: a pipe holds it already
		line, err := p.next()
		all = append(all, line...)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return all, nil
		case err != nil:
			return all, err
		}
	}
}

// drain drops what has arrived.
func (p *program) drain() error {
	_, err := p.arrived()
	return err
}
