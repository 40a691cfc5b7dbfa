// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/tests/engine"
	"nvpair/tests/harness"
)

// A broker that stands still is not on the way of a request, and learns of each job when it goes on (DEC-131).
func TestRequestsGoOnWhileTheBrokerStandsStillAndNoJobIsLost(t *testing.T) {
	t.Parallel()
	const (
		requests = 1300 // four events each
		clients  = 8
		longName = 2 << 10 // makes the events 11 MiB, of which the link holds 8
	)
	model := "demo-" + strings.Repeat("x", longName)
	n := startPlain(t, engine.Config{Models: []engine.Model{{Name: model}}, Pace: engine.Pace{Chunks: 1}})
	n.c.MustCall("workloads:unsubscribe", nil, nil) // the index is what counts, and to be told of each step takes long
	proxy := pidOf(t, n.c, "nvpair-proxy")
	start := time.Now()
	n.p.Signal(syscall.SIGSTOP)
	t.Cleanup(func() { n.p.Signal(syscall.SIGCONT) })

	todo := make(chan int)
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for i := range todo {
				if got, body := chat(n.http, 11434, model); sight(got, body) != whole {
					t.Errorf("request %d: got %d %.100s", i, got, body)
				}
			}
		})
	}
	for i := range requests {
		todo <- i
	}
	close(todo)
	wg.Wait()
	t.Logf("%d requests answered after %v", requests, time.Since(start))

	n.p.Signal(syscall.SIGCONT)
	var states map[string]int
	harness.Eventually(t, 2*inferenceWithin, "end of all jobs in the index", func() bool {
		pause(time.Second / 2) // the list is long
		states = map[string]int{}
		for _, state := range jobStates(t, n.c) {
			states[state]++
		}
		return states["completed"] == requests
	})
	t.Logf("the index knows all after %v", time.Since(start))
	require.Equal(t, map[string]int{"completed": requests}, states)
	require.Equal(t, proxy, pidOf(t, n.c, "nvpair-proxy"), "the proxy that did its work was replaced")
}
