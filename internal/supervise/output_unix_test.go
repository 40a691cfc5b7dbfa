// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package supervise

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/jsonrpc"
)

func TestLastWordsAreHandledBeforeTheEndIsReported(t *testing.T) {
	p := policy()
	p.Budget = 0
	w := start(t, p, "chatterbox")
	w.await("exhausted")
	events := w.all()
	var out, errs []string
	for _, e := range events[:slices.Index(events, "ended 1, exit status 3")] {
		if line, ok := strings.CutPrefix(e, "out "); ok {
			out = append(out, line)
		}
		if line, ok := strings.CutPrefix(e, "err "); ok {
			errs = append(errs, line)
		}
	}
	var want []string
	for i := range lastWords {
		want = append(want, fmt.Sprint(i))
	}
	require.Equal(t, want, out)
	require.Equal(t, want, errs)
}

// framed is a Link of frames whose owner writes to a program that is gone while
// its last frames are still to be read.
type framed struct {
	conn  *jsonrpc.Conn
	p     *Process
	count int // of frames handled
}

func (l *framed) Serve(ctx context.Context) { _ = l.conn.Run(context.WithoutCancel(ctx)) }
func (l *framed) CloseWrite()               { l.conn.CloseWrite() }
func (l *framed) Ping(int64)                {}

func (l *framed) handle(*jsonrpc.Request) {
	if l.count++; l.count == 1 {
		<-l.p.exited
		_ = l.conn.Notify("too-late", nil)
		<-l.p.deaf
	}
}

func TestWritingToAProgramThatIsGoneLosesNothingOfItsOutput(t *testing.T) {
	p := policy()
	p.Budget = 0
	w := watch(t, p, "frames")
	var link *framed
	w.cfg.Attach = func(p *Process) Link {
		link = &framed{p: p}
		link.conn = jsonrpc.New(p.Transport(), jsonrpc.Config{Handle: link.handle})
		return link
	}
	require.NoError(t, w.Start())
	w.await("exhausted")
	require.Equal(t, lastFrames, link.count)
}

func TestHelperInTheGroupDelaysNothing(t *testing.T) {
	for _, ended := range []string{"by itself", "by Stop"} {
		t.Run(ended, func(t *testing.T) {
			var w *watched
			if ended == "by itself" {
				w = start(t, policy(), "helper inside", "ponger") // policy().Drain would take too long
				w.await("ended 1, exit status 1")
				w.await("attached 2")
			} else {
				w = start(t, policy(), "helper inside obeys")
				w.await("out helper ")
				w.stop(never)
			}
			awaitGone(t, atoi(t, w.await("out helper ")))
		})
	}
}

func TestHelperThatLeftTheGroupDelaysByTheDrainOnly(t *testing.T) {
	for _, ended := range []string{"by itself", "by Stop"} {
		t.Run(ended, func(t *testing.T) {
			p := policy()
			p.Drain = 20 * time.Millisecond
			role := map[string]string{"by itself": "helper outside", "by Stop": "helper outside obeys"}[ended]
			w := start(t, p, role, "ponger")
			helper := atoi(t, w.await("out helper "))
			t.Cleanup(func() { _ = syscall.Kill(helper, syscall.SIGKILL) })
			if ended == "by itself" {
				w.await("ended 1, exit status 1")
				w.await("attached 2")
			} else {
				w.stop(never)
			}
			require.True(t, runs(helper), "it is not ours to kill any more")
		})
	}
}
