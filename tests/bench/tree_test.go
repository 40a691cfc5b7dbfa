// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"nvpair/tests/harness"
)

// program is a running binary. Unlike those that a host starts, it is a child of this process from its first
// instruction on, with no helper in between whose start would be measured too.
type program struct {
	*wire
	cmd    *exec.Cmd
	began  time.Time // just before it was forked
	stdin  *os.File
	stdout *os.File
	exited chan time.Time // capacity 1: when it was reaped
}

// start starts one of the binaries on a host. The end of the test kills it if it still runs.
func start(t *testing.T, h *harness.Host, bin string, args ...string) *program {
	t.Helper()
	return launch(t, h, filepath.Join(harness.Bin(t), bin), args...)
}

// launch is start for any program, by its path.
func launch(t *testing.T, h *harness.Host, path string, args ...string) *program {
	t.Helper()
	return launchWith(t, h, nil, path, args...)
}

// launchWith is launch with more in the environment, or other values.
func launchWith(t *testing.T, h *harness.Host, env []string, path string, args ...string) *program {
	t.Helper()
	bin := filepath.Base(path)
	cmd := exec.Command(path, args...)
	cmd.Dir = filepath.Dir(path) // where the broker looks for its workers
	cmd.Env = append(h.Command(path).Env, env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.WaitDelay = time.Second // whoever inherited standard error must not delay the end
	p := &program{cmd: cmd, exited: make(chan time.Time, 1)}
	theirIn, theirOut, err := p.attach()
	if err != nil {
		t.Fatal(err)
	}
	p.began = time.Now()
	err = h.Do(cmd.Start) // a child is where the thread is that forks it
	_, _ = theirIn.Close(), theirOut.Close()
	if err != nil {
		t.Fatalf("start %s: %v", bin, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // read from ProcessState
		p.exited <- time.Now()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // gone already, as a rule; its workers follow it
		<-ended
		_, _ = p.stdin.Close(), p.stdout.Close()
		if t.Failed() {
			t.Logf("standard error of %s (%v):\n%s", bin, cmd.ProcessState, stderr.Bytes())
		}
	})
	return p
}

// attach makes the pipes and returns the program's ends of them.
func (p *program) attach() (theirIn, theirOut *os.File, err error) {
	theirIn, p.stdin, err = os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	p.stdout, theirOut, err = os.Pipe()
	if err != nil {
		return nil, nil, errors.Join(err, theirIn.Close(), p.stdin.Close())
	}
	p.cmd.Stdin, p.cmd.Stdout = theirIn, theirOut
	p.wire = newWire(p.stdin, p.stdout)
	return theirIn, theirOut, nil
}

// startBroker starts a tree and returns it with the time from its fork to app:ready.
func startBroker(t *testing.T, h *harness.Host) (*program, time.Duration) {
	t.Helper()
	p := start(t, h, "nvpair-ui-broker")
	if err := p.awaitNotification("app:ready"); err != nil {
		t.Fatal(err)
	}
	return p, time.Since(p.began)
}

// awaitWorkers waits until every worker that was started has announced itself, so that what follows is not measured
// beside their start. It returns their number.
func awaitWorkers(t *testing.T, p *program) int {
	t.Helper()
	deadline := time.NewTimer(callWithin)
	defer deadline.Stop()
	ticks := time.NewTicker(time.Millisecond)
	defer ticks.Stop()
	p.within(callWithin)
	for {
		line, _, err := p.call("broker:status", "")
		if err != nil {
			t.Fatal(err)
		}
		workers := bytes.Count(line, []byte(`"state":"running"`))
		if workers > 0 && workers == bytes.Count(line, []byte(`,"version":`)) { // the broker's own has a brace before it
			return workers
		}
		select {
		case <-ticks.C:
		case <-deadline.C:
			t.Fatalf("not every worker has announced itself within %v: %.2000s", callWithin, line)
		}
	}
}

// stop ends the input and returns the time until nothing of the tree is left.
func (p *program) stop(t *testing.T, h *harness.Host) time.Duration {
	t.Helper()
	begin := time.Now()
	if err := p.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	return p.awaitGone(t, h).Sub(begin)
}

// awaitEnd waits until the program has ended well, whatever else runs on its host.
func (p *program) awaitEnd(t *testing.T) {
	t.Helper()
	timer := time.NewTimer(callWithin)
	defer timer.Stop()
	select {
	case <-p.exited:
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			t.Fatalf("%s ended with %v", p.cmd.Path, p.cmd.ProcessState)
		}
	case <-timer.C:
		t.Fatalf("%s has not ended within %v", p.cmd.Path, callWithin)
	}
}

// awaitGone waits until the program has ended well and the host is empty, and returns when that was.
func (p *program) awaitGone(t *testing.T, h *harness.Host) time.Time {
	t.Helper()
	timer := time.NewTimer(callWithin)
	defer timer.Stop()
	select {
	case at := <-p.exited:
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			t.Fatalf("%s ended with %v", p.cmd.Path, p.cmd.ProcessState)
		}
		if len(h.Processes()) > 0 {
			h.AwaitNone(callWithin)
			at = time.Now()
		}
		return at
	case <-timer.C:
		t.Fatalf("%s has not ended within %v", p.cmd.Path, callWithin)
	}
	return time.Time{}
}

// rest waits for d. It fails the test if the program ends meanwhile.
func (p *program) rest(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.exited:
		t.Fatalf("%s ended while it was to rest: %v", p.cmd.Path, p.cmd.ProcessState)
	}
}
