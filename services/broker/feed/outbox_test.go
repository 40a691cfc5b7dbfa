// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/jsonrpc"
)

// fakeLink takes room frames, then refuses until there is room again.
type fakeLink struct {
	mu     sync.Mutex // guards the rest
	room   int
	sent   []string
	closed bool
}

func (l *fakeLink) NotifySoon(method string, params json.RawMessage) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return jsonrpc.ErrClosed
	case l.room == 0:
		return jsonrpc.ErrQueueFull
	}
	l.room--
	l.sent = append(l.sent, fmt.Sprintf("%s %s", method, params))
	return nil
}

func (l *fakeLink) CloseWrite() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

func (l *fakeLink) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// take returns what was sent since the last time.
func (l *fakeLink) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := strings.Join(l.sent, ", ")
	l.sent = nil
	return s
}

// drain makes room and waits for the next attempt.
func (l *fakeLink) drain(room int) string {
	l.mu.Lock()
	l.room = room
	l.mu.Unlock()
	await(retryEvery)
	synctest.Wait()
	return l.take()
}

type key struct{ pair, engine string }

func item(method, params string, k any) Item {
	return Item{Method: method, Params: json.RawMessage(params), Key: k}
}

func newOutbox(room int, drained func()) (*Outbox, *fakeLink) {
	l := &fakeLink{room: room}
	return NewOutbox(l, slog.New(slog.DiscardHandler), drained), l
}

func TestOutboxSendsAtOnceWhileTheLinkTakesIt(t *testing.T) {
	o, l := newOutbox(100, func() { t.Error("nothing waited") })
	o.Send(item("up", "1", "a"))
	o.Send(item("up", "2", "a"))
	o.Send(Item{Method: "up", Params: json.RawMessage("3"), Key: "a", Weak: true})
	require.Equal(t, "up 1, up 2, up 3", l.take())
	require.True(t, o.Idle())
}

func TestWhatWaitsCollapsesToTheNewestInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var drained atomic.Int64
		o, l := newOutbox(1, func() { drained.Add(1) })
		o.Send(item("up", "a1", "a"))
		o.Send(item("up", "b1", "b"))
		o.Send(item("up", "a2", "a"))
		o.Send(item("other", "x", nil))
		o.Send(item("other", "y", nil))
		o.Send(item("up", "b2", "b"))
		o.Send(Item{Method: "up", Params: json.RawMessage("b3"), Key: "b", Weak: true}) // gives way
		o.Send(Item{Method: "up", Params: json.RawMessage("c1"), Key: "c", Weak: true}) // to nobody
		require.Equal(t, "up a1", l.take())
		require.False(t, o.Idle())
		await(time.Second)
		synctest.Wait()
		require.Equal(t, "up b2, up a2", l.drain(2))
		o.Send(item("up", "b4", "b")) // behind what waits
		require.Zero(t, drained.Load())
		require.Equal(t, "other x, other y, up c1, up b4", l.drain(4))
		require.EqualValues(t, 1, drained.Load())
		require.True(t, o.Idle())

		o.Send(item("up", "d1", "d")) // and a second time
		require.Empty(t, l.take())
		require.Equal(t, "up d1", l.drain(2))
		require.EqualValues(t, 2, drained.Load())
		o.Send(item("up", "e1", "e")) // at once again
		require.Equal(t, "up e1", l.take())
	})
}

func TestRemovalCoversWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, l := newOutbox(0, nil)
		o.Send(item("up", "a", key{"1", "ollama"}))
		o.Send(item("up", "b", key{"2", "ollama"}))
		o.Send(item("up", "c", key{"1", "lmstudio"}))
		remove := item("remove", "1", "pair 1")
		remove.Covers = func(k any) bool { job, ok := k.(key); return ok && job.pair == "1" }
		o.Send(remove)
		o.Send(item("up", "d", key{"1", "ollama"})) // it came back
		o.Send(remove)
		o.Send(item("up", "e", key{"1", "ollama"}))
		require.Equal(t, "up b, remove 1, up e", l.drain(100))
		require.Zero(t, o.bytes)
		require.Empty(t, o.byKey)
	})
}

func TestWorkerBeyondTheBoundsIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, l := newOutbox(0, nil)
		for n := range maxWaiting {
			o.Send(item("up", "1", n))
		}
		o.Send(item("up", "2", 0)) // another state of one that waits
		require.False(t, l.isClosed())
		o.Send(item("up", "1", -1))
		require.True(t, l.isClosed())
		o.Send(item("up", "1", -2))
		require.True(t, o.Idle())
		await(time.Hour) // nothing is tried again
	})
	o, l := newOutbox(0, nil)
	long := strings.Repeat("x", 1<<20)
	for n := range maxWaitingBytes >> 20 {
		o.Send(item("up", long, n))
	}
	require.False(t, l.isClosed())
	o.Send(item("up", long+"x", 0))
	require.True(t, l.isClosed())
}

func TestClosedOutboxIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, l := newOutbox(0, func() { t.Error("nothing was sent") })
		o.Send(item("up", "1", "a"))
		o.Close()
		o.Send(item("up", "2", "a"))
		require.Empty(t, l.drain(100))
		o.Close()
	})
}

func TestEndedLinkEmptiesTheOutbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, l := newOutbox(0, nil)
		for n := range 10 {
			o.Send(item("up", strconv.Itoa(n), n))
		}
		l.CloseWrite()
		require.Empty(t, l.drain(100))
		require.True(t, o.Idle())
	})
}
