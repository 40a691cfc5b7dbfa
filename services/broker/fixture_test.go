// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"nvpair/internal/applog/applogtest"
	"nvpair/internal/supervise"
	"nvpair/internal/worker/workertest"
	"nvpair/shared/engine"
)

func TestMain(m *testing.M) {
	if journal := os.Getenv(journalVar); journal != "" {
		playWorker(journal)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

const (
	nodeID  = "11111111-2222-3333-4444-555555555555"
	version = "1.2.3"
)

// tree is a broker whose client and workers are played by the test, line by
// line. It lives in a synctest bubble.
type tree struct {
	*Broker
	t      *testing.T
	client *workertest.Peer
	log    *applogtest.Buffer
}

// plant serves a broker without workers and reads its first frame.
func plant(t *testing.T) *tree {
	t.Helper()
	tr := sow(t)
	tr.serve()
	require.Equal(t, notification("app:ready", `{"version":"1.2.3"}`), tr.client.Next())
	return tr
}

// sow returns a broker that is not served yet.
func sow(t *testing.T) *tree {
	t.Helper()
	near, far := net.Pipe()
	log, level, written := applogtest.New(name)
	cfg := Config{
		Client: near, Stderr: io.Discard, Version: version, NodeID: nodeID, DataDir: "/data", Engines: engine.All(),
		Log: log, Level: level,
	}
	cfg.setDefaults()
	_, stop := context.WithCancel(t.Context())
	return &tree{Broker: newBroker(cfg, stop), t: t, client: workertest.NewPeer(t, far), log: written}
}

// serve runs the client's link until the test ends.
func (tr *tree) serve() {
	ctx, cancel := context.WithCancel(tr.t.Context())
	tr.Broker.stop = cancel
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tr.Broker.client.serve(ctx)
	}()
	tr.t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// incarnation is one process of a worker, played by the test.
type incarnation struct {
	*workertest.Peer
	t     *testing.T
	link  *workerLink
	ended chan struct{} // closed when Serve has returned
}

// join attaches an incarnation of a worker.
func (tr *tree) join(name string, generation int) *incarnation {
	tr.t.Helper()
	w := tr.byName[name]
	require.NotNil(tr.t, w, name)
	near, far := net.Pipe()
	p := &supervise.Process{Generation: generation, Path: "./" + w.binary, PID: 4711}
	in := &incarnation{t: tr.t, Peer: workertest.NewPeer(tr.t, far), ended: make(chan struct{})}
	in.link = newWorkerLink(tr.Broker, w, p, near)
	go func() {
		defer close(in.ended)
		in.link.Serve(tr.t.Context())
	}()
	tr.t.Cleanup(in.leave)
	return in
}

// leave closes the worker's streams and waits until the broker has noticed.
func (in *incarnation) leave() {
	_ = in.Conn.Close()
	<-in.ended
}

// crash does the same and reports it as a supervisor does.
func (tr *tree) crash(in *incarnation) {
	in.leave()
	tr.workerEnded(in.link.worker, "exit status 1")
}

func request(id int, method, params string) string { return workertest.Request(id, method, params) }

func notification(method, params string) string { return workertest.Notification(method, params) }

func result(id int, value string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, id, value)
}

func failure(id int, value string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":%s}`, id, value)
}

// golden compares with a file of testdata.
func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join("testdata", file))
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "%s", file)
}
