// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lan

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/mdns"
	"nvpair/tests/harness"
)

// patience bounds waits for what should be immediate, on a busy machine.
const patience = 15 * time.Second

// mdnsPeer is an mdnspeer that runs.
type mdnsPeer struct {
	*harness.Proc
	t *testing.T

	mu      sync.Mutex // guards the rest
	seen    []mdns.Sighting
	changed chan struct{} // closed and replaced with each sighting
}

// startPeer starts mdnspeer and collects what it prints.
func startPeer(t *testing.T, h *harness.Host, args ...string) *mdnsPeer {
	t.Helper()
	p := &mdnsPeer{t: t, changed: make(chan struct{})}
	p.Proc = h.Start(h.Command(harness.Program(t, "tests/lan/mdnspeer"), args...))
	var reading sync.WaitGroup
	reading.Go(func() { // ends with the process
		lines := bufio.NewScanner(p.Stdout)
		for lines.Scan() {
			p.add(lines.Bytes())
		}
	})
	t.Cleanup(func() {
		p.end()
		reading.Wait()
	})
	return p
}

func (p *mdnsPeer) add(line []byte) {
	var s mdns.Sighting
	if err := json.Unmarshal(line, &s); err != nil {
		p.t.Errorf("mdnspeer printed %q: %v", line, err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, s)
	close(p.changed)
	p.changed = make(chan struct{})
}

// tell gives a command.
func (p *mdnsPeer) tell(command string) {
	p.t.Helper()
	_, err := io.WriteString(p.Stdin, command+"\n")
	require.NoError(p.t, err)
}

// end makes the peer say goodbye, and waits until it is gone.
func (p *mdnsPeer) end() {
	p.t.Helper()
	_ = p.Stdin.Close() // it may be closed already
	require.Equal(p.t, 0, p.AwaitExit(patience))
}

// forget drops the sightings so far.
func (p *mdnsPeer) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = nil
}

// sightings returns those since forget.
func (p *mdnsPeer) sightings() []mdns.Sighting {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen)
}

// await waits for a sighting that satisfies ok.
func (p *mdnsPeer) await(what string, d time.Duration, ok func(mdns.Sighting) bool) mdns.Sighting {
	p.t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		p.mu.Lock()
		changed, seen := p.changed, slices.Clone(p.seen)
		p.mu.Unlock()
		if i := slices.IndexFunc(seen, ok); i >= 0 {
			return seen[i]
		}
		select {
		case <-changed:
		case <-timer.C:
			p.t.Fatalf("no sighting within %v: %s; got %s", d, what, printed(seen))
		}
	}
}

func printed(seen []mdns.Sighting) string {
	text := ""
	for _, s := range seen {
		text += fmt.Sprintf("\n  %+v", s)
	}
	return text
}

// here satisfies await for an instance that is not leaving.
func here(instance string) func(mdns.Sighting) bool {
	return func(s mdns.Sighting) bool { return s.Instance == instance && !s.Goodbye }
}
