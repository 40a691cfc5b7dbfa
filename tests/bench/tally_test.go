// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"
)

// tally reads all that a program writes to its client, as a client must, and counts the ends of jobs.
type tally struct {
	p       *program
	answers chan []byte   // capacity 1: there is at most one call
	ended   chan struct{} // closed with the stream

	mu        sync.Mutex // guards the rest
	completed int        // jobs whose one end that was
	others    int        // jobs that ended otherwise
	doubled   int        // ends of jobs that had ended
	known     map[string]bool
}

// newTally takes over what the program writes from now on.
func newTally(p *program) *tally {
	s := &tally{p: p, answers: make(chan []byte, 1), ended: make(chan struct{}), known: make(map[string]bool)}
	_ = p.wire.stop.SetReadDeadline(time.Time{})
	go func() { // ends with the program, whose end closes the stream
		defer close(s.ended)
		for {
			line, err := p.next()
			if err != nil {
				return
			}
			s.take(line)
		}
	}()
	return s
}

func (s *tally) take(line []byte) {
	if bytes.HasPrefix(line, []byte(`{"jsonrpc":"2.0","id":`)) {
		s.answers <- bytes.Clone(line)
		return
	}
	_, info, isJob := bytes.Cut(line, []byte(`"workloadInfo":{`))
	if !isJob {
		return
	}
	state := member(info, "state")
	if state != "completed" && state != "failed" && state != "cancelled" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := member(info, "id")
	switch {
	case s.known[id]:
		s.doubled++
	case state == "completed":
		s.completed++
	default:
		s.others++
	}
	s.known[id] = true
}

// member returns a member without escapes of an object, "" for none.
func member(object []byte, name string) string {
	_, rest, _ := bytes.Cut(object, []byte(`"`+name+`":"`))
	value, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(value)
}

// counts returns how many jobs completed, ended otherwise, and ended again.
func (s *tally) counts() (completed, others, doubled int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.completed, s.others, s.doubled
}

// call asks for something while the program writes, and returns the line of the answer.
func (s *tally) call(t *testing.T, method, params string) []byte {
	t.Helper()
	s.p.last++
	if _, err := s.p.stdin.Write(frame(nil, s.p.last, method, params)); err != nil {
		t.Fatalf("call %s: %v", method, err)
	}
	timer := time.NewTimer(callWithin)
	defer timer.Stop()
	select {
	case line := <-s.answers:
		if id, ok := answered(line); !ok || id != s.p.last {
			t.Fatalf("call %s: answered %.200s", method, line)
		}
		return line
	case <-s.ended:
		t.Fatalf("call %s: the program has ended", method)
	case <-timer.C:
		t.Fatalf("call %s: no answer within %v", method, callWithin)
	}
	return nil
}

// missing waits until that many jobs have completed and each has ended once. It returns how many ends are missing or
// too many, and what was counted.
func (s *tally) missing(jobs int) (wrong int, words string) {
	deadline := time.NewTimer(callWithin)
	defer deadline.Stop()
	ticks := time.NewTicker(10 * time.Millisecond)
	defer ticks.Stop()
	for {
		completed, others, doubled := s.counts()
		wrong = max(jobs-completed, completed-jobs) + others + doubled
		words = fmt.Sprintf("of %d: %d completed, %d ended otherwise, %d ended twice", jobs, completed, others, doubled)
		if wrong == 0 {
			return wrong, words
		}
		select {
		case <-ticks.C:
		case <-deadline.C:
			return wrong, words
		}
	}
}
