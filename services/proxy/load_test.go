// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"nvpair/internal/jsonrpc"
	"nvpair/shared/engine"
	"nvpair/shared/facade"
	"nvpair/shared/workload"
)

// lines is an engine that sends a line whenever it is told to.
func lines(next <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for range next {
			_, _ = io.WriteString(w, "data: {}\n")
			w.(http.Flusher).Flush()
		}
		_, _ = io.WriteString(w, "data: [DONE]\n")
	}
}

func TestAPortIsChangedUnderRunningStreams(t *testing.T) { // PX-20
	r := newRigWith(t, limits{drainTimeout: time.Millisecond})
	next := make(chan struct{})
	r.addNode("a", fakeEngine(t, lines(next)), "m")
	go func() { next <- struct{}{} }()
	old := r.url("")
	resp, err := http.Post(r.url("/v1/chat/completions"), "application/json", strings.NewReader(`{"model":"m"}`))
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	in := bufio.NewReader(resp.Body)
	_, err = in.ReadString('\n')
	require.NoError(t, err)

	for range 3 {
		r.port = freePort(t)
		r.call("ollama:set-port", facade.Port{Port: r.port})
		status, _, _ := r.post("/api/chat", `{"model":"unknown"}`)
		require.Equal(t, http.StatusBadGateway, status)
	}
	http.DefaultClient.CloseIdleConnections()
	require.Eventually(t, func() bool {
		_, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(old)
		return err != nil
	}, 10*time.Second, time.Millisecond, "the old port is closed")

	drained := time.After(300 * time.Millisecond) // long after the time that a stopping worker has
	for running := true; running; {
		select {
		case <-drained:
			running = false
		case next <- struct{}{}:
			_, err := in.ReadString('\n')
			require.NoError(t, err, "the stream goes on")
		}
	}
	close(next)
	rest, err := io.ReadAll(in)
	require.NoError(t, err)
	require.Equal(t, "data: [DONE]\n", string(rest))
	r.awaitTrace("queued@-", "queued@a", "running@a", "completed@a")
	require.Len(t, r.noted("ollama:ready"), 4)
}

func TestABusyPortLeavesTheOldOneServing(t *testing.T) {
	r := newRig(t)
	taken := fakeEngine(t, answers(200, ""))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	port := taken.Listener.Addr().(interface{ String() string }).String()
	_, err := r.conn.Call(ctx, "ollama:set-port", json.RawMessage(`{"port":`+port[strings.LastIndexByte(port, ':')+1:]+`}`))
	var failed *jsonrpc.Error
	require.ErrorAs(t, err, &failed)
	require.Contains(t, failed.Message, "is already in use") // DEC-28
	status, _, _ := r.post("/api/chat", `{"model":"unknown"}`)
	require.Equal(t, http.StatusBadGateway, status)
}

func TestTheWorkersEndIsTheEndOfItsStreams(t *testing.T) {
	cut := make(chan struct{})
	var body io.ReadCloser
	t.Run("worker", func(t *testing.T) {
		r := newRig(t)
		engine := fakeEngine(t, func(w http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			_, _ = io.WriteString(w, "begin")
			w.(http.Flusher).Flush()
			<-req.Context().Done()
			close(cut)
		})
		r.addNode("a", engine, "m")
		resp, err := http.Post(r.url("/api/chat"), "application/json", strings.NewReader(`{"model":"m"}`))
		require.NoError(t, err)
		body = resp.Body
		began := time.Now()
		r.stop()
		require.Less(t, time.Since(began), 2*time.Second, "running requests are ended, not waited for")
		<-cut
	})
	_, err := io.ReadAll(body)
	require.Error(t, err)
	_ = body.Close()
}

// Requests of all kinds, a third of them abandoned, on a worker that then ends:
// no goroutine, no socket and no reservation may be left.
func TestNothingIsLeftAfterManyRequests(t *testing.T) {
	sockets := openSockets()
	t.Run("requests", func(t *testing.T) {
		r := newRigWith(t, limits{firstBackoff: time.Millisecond, held: 50 * mib})
		var n atomic.Int32
		handle := func(w http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			switch n.Add(1) % 5 {
			case 0:
				w.WriteHeader(http.StatusServiceUnavailable)
			case 1:
				panic(http.ErrAbortHandler)
			case 2:
				w.Header().Set("Content-Type", "text/event-stream")
				for range 10 {
					_, _ = io.WriteString(w, "data: {}\n\n")
					w.(http.Flusher).Flush()
				}
				_, _ = io.WriteString(w, "data: [DONE]\n\n")
			case 3:
				select {
				case <-req.Context().Done():
				case <-time.After(5 * time.Millisecond):
				}
			default:
				_, _ = io.WriteString(w, "{}")
			}
		}
		for _, id := range []string{"a", "b", "c"} {
			r.addNode(id, fakeEngine(t, handle, "m"), "m")
		}
		r.call("node/set-priority", json.RawMessage(`{"generation":1,"nodes":["a","b","c"]}`))
		var wg sync.WaitGroup
		slots := make(chan struct{}, 8) // so many at once
		for i := range 200 {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				if i%3 == 0 {
					ctx, cancel = context.WithTimeout(context.Background(), time.Duration(i%7)*time.Millisecond)
				}
				defer cancel()
				path := []string{"/api/chat", "/v1/chat/completions", "/v1/models", "/api/pull", "/api/show", "/api/version"}[i%6]
				method := http.MethodPost
				if path == "/v1/models" || path == "/api/version" {
					method = http.MethodGet
				}
				req, err := http.NewRequestWithContext(ctx, method, r.url(path), strings.NewReader(`{"model":"m"}`))
				if err != nil {
					t.Error(err)
					return
				}
				if resp, err := http.DefaultClient.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			})
		}
		wg.Wait()
		// Every job has exactly one terminal event, and it is its last.
		r.await("an end of every job", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			open := make(map[string]bool)
			for _, j := range r.jobs {
				open[j.ID] = !ended(j)
			}
			for _, still := range open {
				if still {
					return false
				}
			}
			return true
		})
		r.mu.Lock()
		defer r.mu.Unlock()
		last := make(map[string]workload.Info)
		for _, j := range r.jobs {
			before, known := last[j.ID]
			require.False(t, known && ended(before), "job %s has %s after %s", j.ID, j.State, before.State)
			require.Equal(t, before.Seq+1, j.Seq)
			last[j.ID] = j
		}
	})
	http.DefaultClient.CloseIdleConnections()
	require.NoError(t, goleak.Find())
	require.Eventually(t, func() bool { return openSockets() <= sockets }, 10*time.Second, 10*time.Millisecond)
}

func ended(j workload.Info) bool {
	return j.State != workload.StateQueued && j.State != workload.StateRunning
}

// openSockets counts this process's sockets, 0 where that cannot be seen.
func openSockets() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	n := 0
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// fullLink is a link whose queue is full while the test says so.
type fullLink struct {
	full atomic.Bool

	mu  sync.Mutex // guards got
	got []workload.Info
}

func (l *fullLink) NotifySoon(method string, params json.RawMessage) error {
	if l.full.Load() {
		return fmt.Errorf("notify %s: %w", method, jsonrpc.ErrQueueFull)
	}
	var e struct {
		Info workload.Info `json:"workloadInfo"`
	}
	if err := json.Unmarshal(params, &e); err != nil {
		return err
	}
	if method != workload.Method(e.Info.State) {
		return errors.New("method and state differ")
	}
	l.mu.Lock()
	l.got = append(l.got, e.Info)
	l.mu.Unlock()
	return nil
}

func TestAFullLinkLosesNoEndOfAJob(t *testing.T) { // DEC-131
	synctest.Test(t, func(t *testing.T) {
		l := &fullLink{}
		p := &proxy{runID: "r", reporter: newReporter(l, slog.New(slog.DiscardHandler))}
		var facades []*facadeServer
		for _, e := range engine.All() {
			facades = append(facades, &facadeServer{p: p, engine: e})
		}
		var wg sync.WaitGroup
		for worker := range 8 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(1, uint64(worker)))
				for i := range 100 {
					j := facades[i%2].newJob(fmt.Sprint(worker, "-", i/2), "m")
					<-time.After(time.Duration(rng.IntN(10)) * time.Millisecond)
					j.place("a")
					j.place("a") // no change, no event
					j.run()
					<-time.After(time.Duration(rng.IntN(10)) * time.Millisecond)
					j.end(workload.StateCompleted, "")
					j.end(workload.StateFailed, "too late")
					j.place("b")
				}
			})
		}
		for range 60 { // 30 ms full, 5 ms not
			l.full.Store(true)
			<-time.After(30 * time.Millisecond)
			l.full.Store(false)
			<-time.After(5 * time.Millisecond)
		}
		wg.Wait()
		<-time.After(time.Second)
		synctest.Wait()
		last := make(map[string]workload.Info)
		for _, info := range l.got {
			key := info.Engine + info.ID
			require.Greater(t, info.Seq, last[key].Seq, "%s: order of the link is order of the numbers", key)
			last[key] = info
		}
		require.Len(t, last, 800)
		for key, info := range last {
			require.Equal(t, workload.StateCompleted, info.State, key)
			require.EqualValues(t, 4, info.Seq, key)
		}
		require.Less(t, len(l.got), 4*800, "what waits collapses")
		require.Empty(t, p.reporter.late)
		p.reporter.close()
	})
}

func TestABrokerThatNeverReadsCostsABoundedMemory(t *testing.T) {
	l := &fullLink{}
	l.full.Store(true)
	r := newReporter(l, slog.New(slog.DiscardHandler))
	for i := range maxLate { // as if each had been reported
		key := "\x00" + fmt.Sprint(i)
		r.order, r.late[key] = append(r.order, key), workload.Info{ID: fmt.Sprint(i)}
	}
	for i := range 10 {
		r.report(workload.Info{ID: fmt.Sprint(maxLate + i), State: workload.StateQueued})
	}
	require.Len(t, r.late, maxLate)
	require.Len(t, r.order, maxLate)
	require.NotContains(t, r.late, "\x009", "the oldest are given up")
	r.close()
}
