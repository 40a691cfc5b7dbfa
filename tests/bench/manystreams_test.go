// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"nvpair/tests/bench/load"
	"nvpair/tests/harness"
)

const (
	openStreams   = 1000
	streamSeconds = 15 // one chunk in each
)

// proxyProcess is the beginning of the name of the process of a path that streams go through.
var proxyProcess = map[string]string{nginx: "nginx: worker", alone: "nvpair-proxy", wholeTree: "nvpair-proxy"}

// measureStreams opens 1,000 slow streams on one path of a fresh host and watches the memory of the proxy in it.
func measureStreams(t *testing.T, name string) []figure {
	t.Helper()
	s := newSite(t, "streams", name)
	p := s.paths[0]
	pid := processOf(t, s.h, proxyProcess[name])
	before := memoryOf(t, pid).pss
	most := 0.0
	r := s.run(t, p, load.Cell{Kind: load.KindSlow, BodyBytes: 200, Clients: openStreams, Seconds: streamSeconds},
		func() { most = max(most, memoryOf(t, pid).pss) })
	if most == 0 {
		t.Fatalf("%s: no stream was open: %s", name, r.Failure)
	}
	figures := []figure{
		{"1,000 streams: failed, " + name, float64(r.Failures), "", fmt.Sprintf("first byte p50 %.0f, p99 %.0f us %s",
			us(r.First.P50), us(r.First.P99), r.Failure), atMost(0), r.Failure},
		{"1,000 streams: memory of one, " + name, (most - before) / openStreams / 1000, "kB",
			fmt.Sprintf("PSS %.1f before, %.1f MB at most", before/1e6, most/1e6), streamBar(name),
			"README.md: heap of the proxy with its streams open"},
	}
	if p.tally == nil {
		return figures
	}
	figures = append(figures, p.endsFigure("1,000 streams"))
	if name == wholeTree {
		figures = append(figures, p.listFigure(t))
	}
	s.end(t)
	return figures
}

func streamBar(name string) bar {
	if name == nginx {
		return noBar()
	}
	return atMost(40)
}

// listFigure says whether the broker's list has each job as completed.
func (p *path) listFigure(t *testing.T) figure {
	t.Helper()
	list := p.tally.call(t, "workloads:get-initial", "")
	listed := bytes.Count(list, []byte(`"state":"completed"`))
	return figure{"1,000 streams: jobs not completed in the list", float64(p.asked - listed), "",
		fmt.Sprintf("%d listed of %d", listed, p.asked), atMost(0), fmt.Sprintf("%.300s", list)}
}

// processOf returns the one process on the host whose name begins so.
func processOf(t *testing.T, h *harness.Host, name string) int {
	t.Helper()
	found := 0
	harness.Eventually(t, processWithin, "process "+name, func() bool { // nginx starts its worker after it listens
		for _, p := range h.Processes() {
			if strings.HasPrefix(p.Name, name) {
				if found != 0 {
					t.Fatalf("two processes %s: %d and %v", name, found, p)
				}
				found = p.PID
			}
		}
		return found != 0
	})
	return found
}

// processWithin bounds the wait for a process that is on its way.
const processWithin = 5 * time.Second

func memoryOf(t *testing.T, pid int) memory {
	t.Helper()
	m, err := readMemory(pid)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
