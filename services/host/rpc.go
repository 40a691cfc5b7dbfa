// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"

	"github.com/sourcegraph/jsonrpc2"

	"nvpair/internal/appdir"
	"nvpair/internal/filelock"
	"nvpair/internal/ipc"
	"nvpair/shared/brokerapi"
)

// errNoNode means that nothing serves the data directory.
var errNoNode = errors.New("no node is running")

// node is a command's connection to the running node. The client side is a
// library on purpose: an implementation that is not ours proves the wire.
type node struct {
	rpc   *jsonrpc2.Conn
	ready chan struct{} // closed when the tree has said app:ready

	mu     sync.Mutex // guards the rest
	isUp   bool       // ready is closed
	events map[string]chan json.RawMessage
}

// maxEvents is how many events may wait while a command prints; more are
// dropped, for the read loop must not wait.
const maxEvents = 8192

// dial connects to the node that serves this user's data directory.
func dial(ctx context.Context) (*node, error) {
	dataDir, err := appdir.DataDir()
	if err != nil {
		return nil, err
	}
	conn, err := dialAny(ctx, appdir.ControlEndpoints(dataDir))
	if err != nil {
		return nil, explain(err, dataDir)
	}
	n := &node{ready: make(chan struct{}), events: make(map[string]chan json.RawMessage)}
	n.rpc = jsonrpc2.NewConn(context.WithoutCancel(ctx), jsonrpc2.NewPlainObjectStream(conn), n)
	return n, nil
}

// Handle takes what the node sends. It is the library's, not for commands.
func (n *node) Handle(_ context.Context, _ *jsonrpc2.Conn, req *jsonrpc2.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if req.Method == brokerapi.NotifyReady && !n.isUp { // a restarted broker is ready again
		n.isUp = true
		close(n.ready)
	}
	if ch := n.events[req.Method]; ch != nil && req.Params != nil {
		select {
		case ch <- slices.Clone(*req.Params):
		default:
		}
	}
}

// on returns the params of all notifications of that method from now on.
func (n *node) on(method string) <-chan json.RawMessage {
	n.mu.Lock()
	defer n.mu.Unlock()
	ch := make(chan json.RawMessage, maxEvents)
	n.events[method] = ch
	return ch
}

// awaitReady waits until the tree accepts requests.
func (n *node) awaitReady(ctx context.Context) error {
	select {
	case <-n.ready:
		return nil
	case <-n.rpc.DisconnectNotify():
		return errDisconnected
	case <-ctx.Done():
		return fmt.Errorf("the node is still starting: %w", ctx.Err())
	}
}

var errDisconnected = errors.New("the node closed the connection")

// dialAny returns the first endpoint that answers, or else the first error that
// says more than that nobody is there.
func dialAny(ctx context.Context, endpoints []string) (net.Conn, error) {
	err := ipc.ErrNobody
	for _, e := range endpoints {
		conn, dialErr := ipc.Dial(ctx, e)
		if dialErr == nil {
			return conn, nil
		}
		if errors.Is(err, ipc.ErrNobody) {
			err = dialErr
		}
	}
	return nil, err
}

// explain turns "nobody listens" into what the user can do about it.
func explain(err error, dataDir string) error {
	if !errors.Is(err, ipc.ErrNobody) {
		return fmt.Errorf("reach the node: %w", err)
	}
	if info, held, lockErr := filelock.Holder(nodeLock(dataDir)); lockErr == nil && held {
		return fmt.Errorf("%w: process %d holds %s but does not answer; it may be starting or stopping",
			errNoNode, info.PID, dataDir)
	}
	return fmt.Errorf("%w for %s; start one with: %s serve (NVPAIR_DATA_DIR chooses another directory)", errNoNode, dataDir, name)
}

func nodeLock(dataDir string) string { return filepath.Join(dataDir, "run", "node.lock") }

// call calls a method and returns its raw result. An error answer is a
// *jsonrpc2.Error.
func (n *node) call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	var result json.RawMessage
	err := n.rpc.Call(ctx, method, params, &result)
	if errors.Is(err, jsonrpc2.ErrClosed) {
		return nil, errDisconnected
	}
	return result, err
}

func (n *node) close() { _ = n.rpc.Close() }
