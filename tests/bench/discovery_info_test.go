// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"nvpair/shared/nodeinfo"
	"nvpair/tests/harness"
)

const (
	infoClients = 10                    // each with one kept connection, as other nodes have
	infoEvery   = 20 * time.Millisecond // over all of them
)

// smiStandIn is an nvidia-smi that writes a line for each call of it. It stands where the worker looks programs up, so
// each sample of the hardware is a line.
const smiStandIn = `#!/bin/sh
echo "$1" >> "$TMPDIR/smi"
case "$1" in
*utilization*) echo "GPU-1, 37, 1024" ;;
*) echo "GPU-1, NVIDIA GeForce RTX 4090, 24564" ;;
esac
`

// measureInventory asks a node-info 50 times a second from another host.
func measureInventory(t *testing.T) []figure {
	t.Helper()
	_, hosts := newLAN(t, "asked", "asking")
	asked, asking := hosts[0], hosts[1]
	tools := filepath.Join(asked.Dir, "tools")
	if err := errors.Join(os.Mkdir(tools, 0o700), os.WriteFile(filepath.Join(tools, "nvidia-smi"), []byte(smiStandIn), 0o700)); err != nil {
		t.Fatal(err)
	}
	p := launchWith(t, asked, []string{"PATH=" + tools + ":" + os.Getenv("PATH")},
		filepath.Join(harness.Bin(t), "nvpair-node-info"), "--node-id", "5ca1ab1e-0000-4000-8000-000000000001")
	p.within(callWithin)
	if _, err := p.next(); err != nil { // worker/hello, once it listens
		t.Fatal(err)
	}
	a := newAsker(asking, "http://10.77.0.1:14318"+nodeinfo.Path)
	defer a.http.CloseIdleConnections()
	a.ask(t, time.Second) // connections
	a.took, a.stamps = nil, nil

	log := filepath.Join(asked.Dir, "tmp", "smi")
	before, began, cpu := samplesIn(t, log), time.Now(), readActivityOf(t, p.cmd.Process.Pid)
	a.ask(t, *inventoryIn)
	span := time.Since(began)
	taken, used := samplesIn(t, log)-before, readActivityOf(t, p.cmd.Process.Pid).cpu-cpu.cpu
	p.stop(t, asked)
	return []figure{
		{"inventory, 50 requests a second, p99", ms(a.took.quantile(0.99)), "ms", fmt.Sprintf("of %d, p50 %.2f, max %.2f ms", len(a.took),
			ms(a.took.median()), ms(slices.Max(a.took))), atMost(5), "one long wait, with p50 far below it, is mostly the machine's"},
		{"inventory, samples of the hardware", float64(taken) / span.Seconds(), "/s", fmt.Sprintf("%d calls of nvidia-smi, %d readings told in %v",
			taken, len(a.stamps), span.Round(time.Second)), atMost(1), "services/nodeinfo/collector.go"},
		{"inventory, CPU of a core", 100 * used.Seconds() / span.Seconds(), "%", "without nvidia-smi", noBar(), ""},
	}
}

// samplesIn counts the calls for readings.
func samplesIn(t *testing.T, log string) int {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), "utilization")
}

// asker asks a node-info.
type asker struct {
	url  string
	http *http.Client

	mu     sync.Mutex // guards the rest
	took   samples
	stamps []time.Time // of the readings, each once
	failed error
}

func newAsker(h *harness.Host, url string) *asker {
	return &asker{url: url, http: &http.Client{Timeout: callWithin, Transport: &http.Transport{
		DialContext: h.DialContext, MaxIdleConnsPerHost: infoClients, MaxConnsPerHost: infoClients}}}
}

// ask asks for so long, in step with the clock, whether answers have come or not.
func (a *asker) ask(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	ticks := time.NewTicker(infoEvery)
	defer ticks.Stop()
	var waiting sync.WaitGroup
	for ctx.Err() == nil {
		select {
		case <-ticks.C:
			waiting.Go(a.one)
		case <-ctx.Done():
		}
	}
	waiting.Wait()
	if a.failed != nil {
		t.Fatal(a.failed)
	}
}

// one asks once.
func (a *asker) one() {
	begin := time.Now()
	info, err := a.get()
	end := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.failed = err
		return
	}
	a.took = append(a.took, end.Sub(begin))
	const apart = 300 * time.Millisecond // of two readings at least; those of one differ by the time of an answer
	stamp := end.Add(-time.Duration(info.AgeMillis) * time.Millisecond)
	if !slices.ContainsFunc(a.stamps, func(s time.Time) bool { return stamp.Sub(s).Abs() < apart }) {
		a.stamps = append(a.stamps, stamp)
	}
}

func (a *asker) get() (nodeinfo.NodeInfo, error) {
	var info nodeinfo.NodeInfo
	resp, err := a.http.Get(a.url)
	if err != nil {
		return info, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(body, &info)
	}
	if err == nil && (resp.StatusCode != http.StatusOK || !info.TelemetryValid) {
		err = fmt.Errorf("status %d, %s", resp.StatusCode, body)
	}
	return info, err
}
