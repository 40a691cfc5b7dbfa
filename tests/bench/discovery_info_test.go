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
	fixed := launch(t, asked, harness.Program(t, "tests/bench/load/loadtool"), "engine", "10.77.0.1:9000")
	fixed.within(callWithin)
	if _, err := fixed.next(); err != nil { // its address, once it listens
		t.Fatal(err)
	}
	a := newAsker(asking, "http://10.77.0.1:14318"+nodeinfo.Path, "http://10.77.0.1:9000/v1/models")
	defer a.http.CloseIdleConnections()
	a.ask(t, time.Second) // connections
	a.took, a.control, a.stamps = nil, nil, nil

	log := filepath.Join(asked.Dir, "tmp", "smi")
	before, began, cpu := samplesIn(t, log), time.Now(), readActivityOf(t, p.cmd.Process.Pid)
	a.ask(t, *inventoryIn)
	span := time.Since(began)
	taken, used := samplesIn(t, log)-before, readActivityOf(t, p.cmd.Process.Pid).cpu-cpu.cpu
	if err := fixed.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	p.stop(t, asked)
	return []figure{
		{"inventory, 50 requests a second, p99", ms(a.took.quantile(0.99)), "ms", fmt.Sprintf(
			"of %d, p50 %.2f, max %.2f ms; a server of fixed bytes p99 %.2f, p50 %.2f ms", len(a.took), ms(a.took.median()),
			ms(slices.Max(a.took)), ms(a.control.quantile(0.99)), ms(a.control.median())), atMost(5), "the machine was busy if fixed bytes take as long"},
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

// asker asks a node-info and, in turn with it, a server whose answer is known beforehand.
type asker struct {
	url, fixed string
	http       *http.Client

	mu            sync.Mutex // guards the rest
	took, control samples
	stamps        []time.Time // of the readings, each once
	failed        error
}

func newAsker(h *harness.Host, url, fixed string) *asker {
	return &asker{url: url, fixed: fixed, http: &http.Client{Timeout: callWithin, Transport: &http.Transport{
		DialContext: h.DialContext, MaxIdleConnsPerHost: infoClients, MaxConnsPerHost: infoClients}}}
}

// ask asks for so long, in step with the clock, whether answers have come or not.
func (a *asker) ask(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	ticks := time.NewTicker(infoEvery / 2)
	defer ticks.Stop()
	var waiting sync.WaitGroup
	for i := 0; ctx.Err() == nil; i++ {
		select {
		case <-ticks.C:
			waiting.Go([]func(){a.one, a.other}[i%2])
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

// other asks the other server.
func (a *asker) other() {
	begin := time.Now()
	_, err := a.read(a.fixed)
	end := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.failed = err
		return
	}
	a.control = append(a.control, end.Sub(begin))
}

func (a *asker) get() (nodeinfo.NodeInfo, error) {
	var info nodeinfo.NodeInfo
	body, err := a.read(a.url)
	if err == nil {
		err = json.Unmarshal(body, &info)
	}
	if err == nil && !info.TelemetryValid {
		err = fmt.Errorf("no reading: %s", body)
	}
	return info, err
}

func (a *asker) read(url string) ([]byte, error) {
	resp, err := a.http.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: status %d, %s", url, resp.StatusCode, body)
	}
	return body, err
}
