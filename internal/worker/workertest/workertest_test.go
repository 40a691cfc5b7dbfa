// SPDX-License-Identifier: Apache-2.0

package workertest

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"nvpair/internal/jsonrpc"
	"nvpair/internal/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// demo is a worker that answers "echo" with its params, tells "told" of them too, and on "late" sends an event a second
// later.
func demo(ctx context.Context, cfg worker.Config) error {
	l := worker.NewLink(cfg)
	l.Serve(ctx, func(r *jsonrpc.Request) {
		switch r.Method {
		case "echo":
			_ = l.Notify("told", r.Params)
			r.Reply(r.Params)
		case "late":
			time.AfterFunc(time.Second, func() { _ = l.Notify("event", nil) })
		default:
			l.Unknown(r)
		}
	})
	return errors.New("the end")
}

// story is what a worker's suite does.
func story(t *testing.T) {
	p := Start(t, "demo", demo)
	p.Notify("echo", `{"a":1}`)
	var params struct{ A int }
	p.Event("told", &params)
	require.Equal(t, 1, params.A)
	p.Notify("echo", "")
	p.Expect(Notification("told", ""))
	p.Send(Request(1, "echo", `[2]`), Request(2, "no", ""))
	p.Expect(Notification("told", `[2]`), `{"jsonrpc":"2.0","id":1,"result":[2]}`)
	require.Contains(t, p.Next(), `"id":2,"error":{"code":-32601`)
	require.Contains(t, p.Call("no", ""), `{"error":{"code":-32601`)
	p.Notify("no", "")
	p.Quiet()
	require.Contains(t, p.Log.String(), "[demo] DEBUG unknown")
	require.EqualError(t, p.Stop(), "the end")
	require.EqualError(t, p.Stop(), "the end")
}

func TestAWorkerIsPlayedInABubbleAndOutside(t *testing.T) {
	p := Launch(t, "demo", func(context.Context, worker.Config) error { return errors.New("at once") })
	p.Closed()
	require.EqualError(t, p.Wait(), "at once")
	story(t)
	synctest.Test(t, story)
}

// fakeT notes a failure instead of having one.
type fakeT struct {
	testing.TB
	failed bool
}

func (f *fakeT) Errorf(string, ...any) { f.failed = true }
func (f *fakeT) FailNow()              { f.failed = true; runtime.Goexit() }

// fails reports whether a step fails its test.
func fails(t *testing.T, p *Peer, step func(*Peer)) bool {
	f := &fakeT{TB: t}
	p.t = f
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		step(p)
	}()
	<-ended
	p.t = t
	return f.failed
}

func TestWhatNobodyExpectedFails(t *testing.T) {
	echo, told := Request(1, "echo", `1`), Notification("told", `1`)
	for name, step := range map[string]func(*Peer){
		"another frame":              func(p *Peer) { p.Send(echo); p.Expect(Notification("told", `2`)) },
		"the same in another form":   func(p *Peer) { p.Send(echo); p.Expect(Notification("told", ` 1`)) },
		"another method":             func(p *Peer) { p.Send(echo); p.Event("event", &json.RawMessage{}) },
		"an event before the answer": func(p *Peer) { p.Call("echo", `1`) },
		"a frame at the end":         func(p *Peer) { p.Send(echo); p.Expect(told); p.Quiet() },
		"a frame on its way":         func(p *Peer) { p.Send(echo); p.Expect(told); p.Idle() },
		"a frame before the end":     func(p *Peer) { p.Send(echo); p.Closed() },
		"no frame":                   func(p *Peer) { p.Next() },
		"no end":                     func(p *Peer) { p.Closed() },
		"too late":                   func(p *Peer) { p.Patience = time.Millisecond; p.Notify("late", ""); p.Next() },
		"no script":                  func(p *Peer) { p.Play("none", nil) },
	} {
		synctest.Test(t, func(t *testing.T) {
			p := Start(t, "demo", demo)
			require.True(t, fails(t, p, step), name)
		})
	}
}

func TestIdleWaitsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer func() { _ = theirs.Close() }()
		p := NewPeer(t, ours)
		p.Idle()
		require.NoError(t, p.Stop(), "there is no worker")
	})
}
