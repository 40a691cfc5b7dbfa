// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"github.com/sourcegraph/jsonrpc2"

	"nvpair/internal/appdir"
	"nvpair/internal/filelock"
	"nvpair/internal/ipc"
)

// errNoNode means that nothing serves the data directory.
var errNoNode = errors.New("no node is running")

// node is a command's connection to the running node. The client side is a
// library on purpose: an implementation that is not ours proves the wire.
type node struct {
	rpc *jsonrpc2.Conn
}

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
	ignore := jsonrpc2.HandlerWithError(func(context.Context, *jsonrpc2.Conn, *jsonrpc2.Request) (any, error) {
		return nil, nil
	})
	return &node{rpc: jsonrpc2.NewConn(context.WithoutCancel(ctx), jsonrpc2.NewPlainObjectStream(conn), ignore)}, nil
}

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
	return fmt.Errorf("%w for %s; start one with: %s serve", errNoNode, dataDir, name)
}

func nodeLock(dataDir string) string { return filepath.Join(dataDir, "run", "node.lock") }

// call calls a method and returns its raw result. An error answer is a
// *jsonrpc2.Error.
func (n *node) call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	var result json.RawMessage
	err := n.rpc.Call(ctx, method, params, &result)
	if errors.Is(err, jsonrpc2.ErrClosed) {
		return nil, errors.New("the node closed the connection")
	}
	return result, err
}

func (n *node) close() { _ = n.rpc.Close() }
