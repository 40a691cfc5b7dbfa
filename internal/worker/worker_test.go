// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"nvpair/internal/applog"
	"nvpair/internal/applog/applogtest"
	"nvpair/internal/jsonrpc"
)

// The frames with which every worker of these tests begins.
const (
	ready = `{"jsonrpc":"2.0","method":"ready","params":{"version":"1.2.3"}}`
	hello = `{"jsonrpc":"2.0","method":"worker/hello","params":{"liveness":1,"version":"1.2.3"}}`
)

// peer is the broker's end of a link whose other end a worker serves in a
// synctest bubble.
type peer struct {
	*Link
	t     *testing.T
	log   *applogtest.Buffer
	level *slog.LevelVar
	in    *io.PipeWriter     // the worker's input
	out   *io.PipeReader     // the worker's output, read until it ends
	end   context.CancelFunc // of the context that Serve got
	ended chan struct{}      // closed when Serve has returned

	mu    sync.Mutex // guards lines
	lines []string   // that the worker sent
}

// duplex joins the worker's ends of two pipes.
type duplex struct {
	*io.PipeReader
	*io.PipeWriter
}

func (d duplex) Close() error { return errors.Join(d.PipeWriter.Close(), d.PipeReader.Close()) }

// serve runs test against a worker, in a bubble. A nil handle leaves every
// message unknown.
func serve(t *testing.T, handle func(*Link, *jsonrpc.Request), test func(*peer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		p := &peer{t: t, log: new(applogtest.Buffer), level: new(slog.LevelVar), in: inW, out: outR, ended: make(chan struct{})}
		p.Link = NewLink(Config{
			Link:    duplex{inR, outW},
			Version: "1.2.3",
			Log:     slog.New(applog.NewHandler(p.log, "demo", p.level)),
			Level:   p.level,
		})
		if handle == nil {
			handle = (*Link).Unknown
		}
		ctx, cancel := context.WithCancel(t.Context())
		p.end = cancel
		go func() {
			defer close(p.ended)
			p.Serve(ctx, func(r *jsonrpc.Request) { handle(p.Link, r) })
		}()
		go p.collect()
		test(p)
		cancel()
		<-p.ended
		_ = outR.Close()
	})
}

func (p *peer) collect() {
	for in := bufio.NewScanner(p.out); in.Scan(); {
		p.mu.Lock()
		p.lines = append(p.lines, in.Text())
		p.mu.Unlock()
	}
}

// send writes a line to the worker.
func (p *peer) send(line string) {
	p.t.Helper()
	_, err := io.WriteString(p.in, line+"\n")
	require.NoError(p.t, err)
}

// got returns what the worker has sent after its first two frames, once nothing
// moves any more.
func (p *peer) got() []string {
	p.t.Helper()
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	require.GreaterOrEqual(p.t, len(p.lines), 2)
	require.Equal(p.t, []string{ready, hello}, p.lines[:2])
	return append([]string{}, p.lines[2:]...)
}

// requireEnded requires that Serve has returned and the link is closed.
func (p *peer) requireEnded() {
	p.t.Helper()
	synctest.Wait()
	select {
	case <-p.ended:
	default:
		p.t.Fatal("the worker goes on")
	}
	_, err := io.WriteString(p.in, "x")
	require.ErrorIs(p.t, err, io.ErrClosedPipe)
}

// requireServing requires that Serve has not returned.
func (p *peer) requireServing() {
	p.t.Helper()
	synctest.Wait()
	select {
	case <-p.ended:
		p.t.Fatal("the worker has ended")
	default:
	}
}

func echo(_ *Link, r *jsonrpc.Request) { r.Reply(r.Method) }

func TestReadyThenHelloAreTheFirstFrames(t *testing.T) {
	serve(t, echo, func(p *peer) {
		p.send(`{"jsonrpc":"2.0","id":1,"method":"early"}`)
		require.Equal(t, []string{`{"jsonrpc":"2.0","id":1,"result":"early"}`}, p.got()) // got looks at the first two
	})
}

func TestNothingMovesBeforeServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inR, _ := io.Pipe()
		outR, outW := io.Pipe()
		l := NewLink(Config{Link: duplex{inR, outW}, Version: "1.2.3", Log: slog.New(slog.DiscardHandler),
			Level: new(slog.LevelVar)})
		require.NoError(t, l.Notify("impatient", nil))
		var sent applogtest.Buffer
		ended := make(chan struct{})
		go func() { defer close(ended); _, _ = io.Copy(&sent, outR) }()
		synctest.Wait()
		require.Empty(t, sent.String())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		l.Serve(ctx, l.Unknown)
		<-ended
		require.Equal(t, ready+"\n"+hello+"\n"+`{"jsonrpc":"2.0","method":"impatient"}`+"\n", sent.String())
	})
}

func TestMessagesAreHandledOneAtATimeAndInOrder(t *testing.T) {
	const n = 3 * inboxLen
	var order []string // the handler needs no lock
	var want []string
	handle := func(_ *Link, r *jsonrpc.Request) { order = append(order, r.Method) }
	serve(t, handle, func(p *peer) {
		for i := range n {
			want = append(want, fmt.Sprint("m", i))
			p.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"m%d"}`, i))
		}
		require.Empty(t, p.got())
		require.Equal(t, want, order)
	})
}

func TestEveryPingIsAnsweredWithItsNumber(t *testing.T) {
	serve(t, nil, func(p *peer) {
		for _, seq := range []string{"1", "2", "9007199254740993"} {
			p.send(`{"jsonrpc":"2.0","method":"worker/ping","params":{"seq":` + seq + `}}`)
		}
		require.Equal(t, []string{
			`{"jsonrpc":"2.0","method":"worker/pong","params":{"seq":1}}`,
			`{"jsonrpc":"2.0","method":"worker/pong","params":{"seq":2}}`,
			`{"jsonrpc":"2.0","method":"worker/pong","params":{"seq":9007199254740993}}`,
		}, p.got())
	})
}

func TestStuckHandlerIsAMissingPong(t *testing.T) {
	var release chan struct{}
	stuck := func(l *Link, r *jsonrpc.Request) {
		<-release
		_ = l.Notify("done", nil)
	}
	serve(t, stuck, func(p *peer) {
		release = make(chan struct{}) // of the bubble
		p.send(`{"jsonrpc":"2.0","method":"work"}`)
		p.send(`{"jsonrpc":"2.0","method":"worker/ping","params":{"seq":1}}`)
		require.Empty(t, p.got())
		close(release)
		require.Equal(t, []string{
			`{"jsonrpc":"2.0","method":"done"}`,
			`{"jsonrpc":"2.0","method":"worker/pong","params":{"seq":1}}`,
		}, p.got())
	})
}

func TestUndecodablePingIsLoggedOnly(t *testing.T) {
	serve(t, nil, func(p *peer) {
		for _, params := range []string{``, `,"params":[1]`, `,"params":{"seq":"1"}`} {
			p.send(`{"jsonrpc":"2.0","method":"worker/ping"` + params + `}`)
		}
		require.Empty(t, p.got())
		require.Equal(t, 3, strings.Count(p.log.String(), "[demo] WARN undecodable ping err="))
	})
}

func TestShutdownIsAnsweredThenTheWorkerEnds(t *testing.T) {
	handle := func(_ *Link, r *jsonrpc.Request) { t.Errorf("%s was handled", r.Method) }
	serve(t, handle, func(p *peer) {
		p.send(`{"jsonrpc":"2.0","id":"x","method":"shutdown"}` + "\n" + `{"jsonrpc":"2.0","id":2,"method":"behind"}`)
		require.Equal(t, []string{`{"jsonrpc":"2.0","id":"x","result":null}`}, p.got())
		p.requireEnded()
	})
}

func TestShutdownIsARequestOnly(t *testing.T) {
	serve(t, nil, func(p *peer) {
		p.level.Set(slog.LevelDebug)
		p.send(`{"jsonrpc":"2.0","method":"shutdown"}`)
		p.requireServing()
		require.Contains(t, p.log.String(), "[demo] DEBUG unknown notification dropped method=shutdown\n")
	})
}

func TestUnknownMessages(t *testing.T) {
	serve(t, nil, func(p *peer) {
		p.send(`{"jsonrpc":"2.0","method":"no/such"}`)
		p.send(`{"jsonrpc":"2.0","id":1,"method":"no/such"}`)
		require.Equal(t, []string{
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"method not found: no/such"}}`,
		}, p.got())
		require.Empty(t, p.log.String(), "a DEBUG line is below the level")

		p.level.Set(slog.LevelDebug)
		p.send(`{"jsonrpc":"2.0","method":"no/such"}`)
		p.requireServing()
		require.Contains(t, p.log.String(), "[demo] DEBUG unknown notification dropped method=no/such\n")
	})
}

func TestEndOfInputHandlesWhatHadArrived(t *testing.T) {
	serve(t, echo, func(p *peer) {
		var text strings.Builder
		var want []string
		for i := range 3 * inboxLen {
			fmt.Fprintf(&text, `{"jsonrpc":"2.0","id":%d,"method":"m"}`+"\n", i)
			want = append(want, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":"m"}`, i))
		}
		text.WriteString(`{"jsonrpc":"2.0","id":"last","method":"no newline"}`)
		want = append(want, `{"jsonrpc":"2.0","id":"last","result":"no newline"}`)
		_, err := io.WriteString(p.in, text.String())
		require.NoError(t, err)
		require.NoError(t, p.in.Close())
		require.Equal(t, want, p.got())
		p.requireEnded()
		require.Empty(t, p.log.String())
	})
}

func TestReadErrorIsLoggedAndEndsTheWorker(t *testing.T) {
	serve(t, echo, func(p *peer) {
		p.send(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		require.NoError(t, p.in.CloseWithError(errors.New("cable cut")))
		require.Equal(t, []string{`{"jsonrpc":"2.0","id":1,"result":"m"}`}, p.got())
		p.requireEnded()
		require.Contains(t, p.log.String(), `[demo] WARN link read failed err="cable cut"`)
	})
}

func TestBrokerThatIsGoneEndsTheWorker(t *testing.T) {
	serve(t, echo, func(p *peer) {
		require.Empty(t, p.got())
		require.NoError(t, p.out.Close())
		p.send(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		p.requireEnded()
	})
}

func TestEndOfTheContextEndsTheWorker(t *testing.T) {
	serve(t, echo, func(p *peer) {
		require.NoError(t, p.Notify("queued", nil))
		p.end()
		require.Equal(t, []string{`{"jsonrpc":"2.0","method":"queued"}`}, p.got())
		p.requireEnded()
	})
}

func TestContextThatHasEndedStillAnnounces(t *testing.T) {
	serve(t, echo, func(p *peer) {
		p.end()
		require.Empty(t, p.got())
		p.requireEnded()
	})
}

func TestRequestMayBeAnsweredLater(t *testing.T) {
	var kept []*jsonrpc.Request
	handle := func(_ *Link, r *jsonrpc.Request) { kept = append(kept, r) }
	serve(t, handle, func(p *peer) {
		p.send(`{"jsonrpc":"2.0","id":1,"method":"slow"}`)
		p.send(`{"jsonrpc":"2.0","method":"worker/ping","params":{"seq":1}}`)
		require.Equal(t, []string{`{"jsonrpc":"2.0","method":"worker/pong","params":{"seq":1}}`}, p.got())
		kept[0].Reply("at last")
		require.Equal(t, `{"jsonrpc":"2.0","id":1,"result":"at last"}`, p.got()[1])
	})
}

func TestHandlerThatWaitsForAnAnswerEndsWithTheLink(t *testing.T) {
	var err error
	handle := func(l *Link, r *jsonrpc.Request) { _, err = l.Call(context.Background(), "question", nil) }
	serve(t, handle, func(p *peer) {
		p.send(`{"jsonrpc":"2.0","method":"work"}`)
		require.Equal(t, []string{`{"jsonrpc":"2.0","id":1,"method":"question"}`}, p.got())
		require.NoError(t, p.in.Close())
		p.requireEnded()
		require.ErrorIs(t, err, jsonrpc.ErrClosed)
	})
}

func TestAWorkerWhoseContractHasNoReadySaysHelloAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inR, inW := io.Pipe()
		var sent bytes.Buffer
		level := new(slog.LevelVar)
		l := NewLink(Config{
			Link: writeTo{inR, &sent}, Version: "1.2.3", NoReady: true,
			Log: slog.New(slog.DiscardHandler), Level: level,
		})
		require.NoError(t, inW.Close())
		l.Serve(t.Context(), l.Unknown)
		require.Equal(t, hello+"\n", sent.String())
	})
}

// writeTo is a link whose output is kept.
type writeTo struct {
	io.ReadCloser
	io.Writer
}
