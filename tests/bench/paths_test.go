// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"nvpair/tests/bench/load"
	"nvpair/tests/harness"
)

// Ways from the client to the engine.
const (
	direct    = "direct"
	nginx     = "nginx"
	alone     = "proxy alone"
	wholeTree = "whole tree"
)

// Addresses of the measured host.
const (
	engineAddr = "127.0.0.1:11435" // where the tree looks for an engine
	nginxAddr  = "127.0.0.1:18080"
	aloneAddr  = "127.0.0.1:18434"
	treeAddr   = "127.0.0.1:11434" // the facade's port
)

// path is one way to the engine.
type path struct {
	name  string
	addr  string
	tally *tally // of who tells about jobs; nil without
	asked int    // requests that were answered on it
	pids  []int  // of all processes between client and engine
}

// site is a host with an engine, a client and some paths between them, each a process of its own.
type site struct {
	h         *harness.Host
	generator *program
	paths     []*path
}

// newSite starts what the named paths need.
func newSite(t *testing.T, name string, paths ...string) *site {
	t.Helper()
	s := &site{h: harness.NewHost(t, name)}
	tool := harness.Program(t, "tests/bench/load/loadtool")
	launch(t, s.h, tool, "engine", engineAddr)
	awaitListening(t, s.h, engineAddr)
	s.generator = launch(t, s.h, tool, "client")
	for _, way := range paths {
		p := &path{name: way, addr: engineAddr}
		switch way {
		case nginx:
			p.addr = nginxAddr
			startNginx(t, s.h)
			p.pids = []int{processOf(t, s.h, proxyProcess[nginx])}
		case alone:
			p.addr, p.tally = aloneAddr, startAlone(t, s.h)
			p.pids = familyOf(s.h, p.tally.p)
		case wholeTree:
			p.addr, p.tally = treeAddr, startTree(t, s.h)
			p.pids = familyOf(s.h, p.tally.p)
		}
		s.paths = append(s.paths, p)
		s.awaitServed(t, p)
	}
	return s
}

// startAlone starts nvpair-proxy and does for it what the broker does: enables a facade, tells it where the engine is,
// and reads what it says.
func startAlone(t *testing.T, h *harness.Host) *tally {
	t.Helper()
	s := newTally(start(t, h, "nvpair-proxy"))
	port := func(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }
	s.call(t, "facade/enable", `{"engine":"ollama","ignorePersistedPort":true,"port":`+port(aloneAddr)+`,`+
		`"hostUuid":"8c1d5e9e-0000-4000-8000-000000000001"}`)
	s.call(t, "ollama:node/set-local-backend", `{"engine":"ollama","healthy":true,"port":`+port(engineAddr)+`}`)
	return s
}

// startTree starts the whole tree with a client that has subscribed to jobs.
func startTree(t *testing.T, h *harness.Host) *tally {
	t.Helper()
	p, _ := startBroker(t, h)
	awaitWorkers(t, p)
	s := newTally(p)
	s.call(t, "workloads:subscribe", "")
	return s
}

// familyOf returns the ids of a program and its children.
func familyOf(h *harness.Host, p *program) []int {
	pids := []int{p.cmd.Process.Pid}
	for _, child := range h.Processes() {
		if child.PPID == pids[0] {
			pids = append(pids, child.PID)
		}
	}
	return pids
}

// cpu returns what the processes of a path have used so far.
func (p *path) cpu(t *testing.T) time.Duration {
	t.Helper()
	var sum time.Duration
	for _, pid := range p.pids {
		a, err := readActivity(pid)
		if err != nil {
			t.Fatal(err)
		}
		sum += a.cpu
	}
	return sum
}

// awaitServed waits until a request on the path is answered rightly.
func (s *site) awaitServed(t *testing.T, p *path) {
	t.Helper()
	harness.Eventually(t, callWithin, "right answer on the path: "+p.name, func() bool {
		r := s.run(t, p, load.Cell{Kind: load.KindJSON, BodyBytes: 200, Clients: 1, For: time.Second, Limit: 1}, nil)
		return r.Failures == 0
	})
}

// end ends the programs that told about jobs, and requires that they end well.
func (s *site) end(t *testing.T) {
	t.Helper()
	for _, p := range s.paths {
		if p.tally == nil {
			continue
		}
		if err := p.tally.p.stdin.Close(); err != nil {
			t.Fatal(err)
		}
		p.tally.p.awaitEnd(t)
		<-p.tally.ended
	}
}

// run takes one measurement on a path. While slow streams are open it calls look each second; nil is no look.
func (s *site) run(t *testing.T, p *path, c load.Cell, look func()) load.Result {
	t.Helper()
	c.Addr = p.addr
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.generator.stdin.Write(append(raw, '\n')); err != nil {
		t.Fatalf("write a cell: %v", err)
	}
	r := s.result(t, c)
	if r.Open > 0 {
		for range c.Seconds - 2 { // some of the streams end in the last second
			look()
			s.generator.rest(t, time.Second)
		}
		r = s.result(t, c)
	}
	p.asked += r.Sent
	return r
}

// result reads the generator's next line.
func (s *site) result(t *testing.T, c load.Cell) (r load.Result) {
	t.Helper()
	s.generator.within(c.For + time.Duration(c.Seconds)*time.Second + 2*callWithin)
	line, err := s.generator.next()
	if err == nil {
		err = json.Unmarshal(line, &r)
	}
	if err != nil {
		t.Fatalf("result of %+v: %v", c, err)
	}
	return r
}

// must is run for what may have no failure. It returns too what an answer cost the processes of the path.
func (s *site) must(t *testing.T, p *path, c load.Cell) (r load.Result, cost time.Duration) {
	t.Helper()
	before := p.cpu(t)
	r = s.run(t, p, c, nil)
	if r.Failures > 0 {
		t.Fatalf("%s, %+v: %d clients failed: %s", p.name, c, r.Failures, r.Failure)
	}
	return r, (p.cpu(t) - before) / time.Duration(r.Sent)
}

// endsFigure says whether the client of a path was told of each job's end exactly once.
func (p *path) endsFigure(load string) figure {
	wrong, words := p.tally.missing(p.asked)
	return figure{fmt.Sprintf("%s: job ends missing or doubled, %s", load, p.name), float64(wrong), "", words, atMost(0),
		"the link of the proxy, or the broker's queue for its client (broker:status counts what it dropped)"}
}
