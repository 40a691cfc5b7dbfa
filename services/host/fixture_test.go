// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"nvpair/internal/applog/applogtest"
	"nvpair/internal/supervise"
	"nvpair/internal/worker/workertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shared is a hub whose broker and clients are played by the test, line by line.
type shared struct {
	*hub
	t       *testing.T
	ctx     context.Context // of the hub
	log     *applogtest.Buffer
	out     *applogtest.Buffer
	clients chan net.Conn // to be accepted; unbuffered
}

// share runs a hub without a broker in a synctest bubble.
func share(t *testing.T) *shared {
	t.Helper()
	ln := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	s := shareOn(t, ln)
	s.clients = ln.conns
	return s
}

func shareOn(t *testing.T, ln net.Listener) *shared {
	t.Helper()
	ctx, stop := context.WithCancelCause(t.Context())
	log, _, written := applogtest.New(name)
	s := &shared{t: t, ctx: ctx, log: written, out: new(applogtest.Buffer)}
	s.hub = newHub(serveConfig{
		Out: s.out, Err: io.Discard, DataDir: "/data", Policy: brokerPolicy(),
		Log: log,
	}, ln, stop)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.run(ctx)
		s.announced.Wait()
	}()
	t.Cleanup(func() {
		stop(nil)
		<-ended
	})
	return s
}

// connect returns a new client.
func (s *shared) connect() *workertest.Peer {
	s.t.Helper()
	near, far := net.Pipe()
	s.clients <- near
	synctest.Wait()
	return workertest.NewPeer(s.t, far)
}

// enter returns a new client that was told that the broker is ready.
func (s *shared) enter() *workertest.Peer {
	s.t.Helper()
	c := s.connect()
	c.Expect(readyFrame)
	return c
}

const readyFrame = `{"jsonrpc":"2.0","method":"app:ready","params":{"version":"1.2.3"}}`

// fakeBroker is one broker process, played by the test.
type fakeBroker struct {
	*workertest.Peer
	t     *testing.T
	link  *brokerLink
	ended chan struct{} // closed when Serve has returned
}

// attach connects a broker that is not ready yet.
func (s *shared) attach() *fakeBroker {
	near, far := net.Pipe()
	b := &fakeBroker{t: s.t, Peer: workertest.NewPeer(s.t, far), ended: make(chan struct{})}
	b.link = newBrokerLink(s.hub, &supervise.Process{Generation: 1}, near)
	go func() {
		defer close(b.ended)
		b.link.Serve(s.ctx)
	}()
	s.t.Cleanup(b.leave)
	return b
}

// brokerCalls is how many calls the hub makes when a broker is ready.
const brokerCalls = 6

// serveBroker connects a broker that is ready.
func (s *shared) serveBroker() *fakeBroker {
	s.t.Helper()
	b := s.attach()
	b.Send(readyFrame)
	for i, ns := range []string{"discovery", "engine", "workloads", "ollama-proxy", "lmstudio-proxy"} {
		b.Expect(request(i+1, ns+":subscribe", ""))
		b.Send(result(i+1, `{"subscribed":true}`))
	}
	b.Expect(request(brokerCalls, "broker:status", ""))
	b.Send(result(brokerCalls, `{"version":"1.2.3","nodeId":"n-1","workers":[{"state":"running"},{"state":"absent"},{"state":"failed"}]}`))
	return b
}

func (b *fakeBroker) leave() {
	_ = b.Conn.Close()
	<-b.ended
}

// answer takes the next request, which must be this one, and answers it.
func (b *fakeBroker) answer(id int, method, params, value string) {
	b.t.Helper()
	b.Expect(request(id, method, params))
	b.Send(result(id, value))
}

func request(id int, method, params string) string { return workertest.Request(id, method, params) }

func notification(method, params string) string { return workertest.Notification(method, params) }

func result(id int, value string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, id, value)
}

func failure(id int, message string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"code":-32000,"message":%q}}`, id, message)
}

// pipeListener accepts what a test hands it.
type pipeListener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "/run/n.sock", Net: "unix"} }
