// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sourcegraph/jsonrpc2"
	"github.com/stretchr/testify/require"

	"nvpair/internal/appdir"
	"nvpair/internal/worker/workertest"
)

const (
	manualDown   = "nvpair-manual-nodes is not running just now, try again in a few seconds (nvpair status)"
	manualSilent = "nvpair-manual-nodes does not answer just now, try again in a few seconds (nvpair status)"
)

// scripted are the answers of a node, a result or an error by method; to a method that
// is not in it there is none.
type scripted map[string]string

func nodeWith(list string) scripted {
	a := scripted{
		"broker:status":       `"result":{"nodeId":"me"}`,
		"discovery:get-nodes": `"result":{"nodes":[{"hostUuid":"me","name":"alpha","ipAddress":"10.0.0.1"}]}`,
	}
	if list != "" {
		a["nodes/list"] = list
	}
	return a
}

// serve answers requests until the peer hangs up.
func (a scripted) serve(peer *workertest.Peer) {
	for {
		line, err := peer.Lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var req struct {
			ID     int
			Method string
		}
		if json.Unmarshal(line, &req) == nil && a[req.Method] != "" {
			_, _ = fmt.Fprintf(peer.Conn, `{"jsonrpc":"2.0","id":%d,%s}`+"\n", req.ID, a[req.Method])
		}
	}
}

func TestNodesAreListedWhateverBecameOfManualNodes(t *testing.T) {
	for answer, why := range map[string]string{
		"": manualSilent,
		`"error":{"code":-32000,"message":"manual-nodes not available"}`:                       manualDown,
		`"error":{"code":-32000,"message":"manual-nodes call failed: the connection is gone"}`: manualSilent,
		`"error":{"code":-32601,"message":"method not found: nodes/list"}`:                     "method not found: nodes/list",
	} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			n := &node{ready: make(chan struct{})}
			close(n.ready)
			n.rpc = jsonrpc2.NewConn(context.Background(), jsonrpc2.NewPlainObjectStream(near), n)
			go nodeWith(answer).serve(workertest.NewPeer(t, far)) // ends with the connection
			begin := time.Now()
			list, err := n.nodeList(t.Context())
			require.NoError(t, err, answer)
			require.LessOrEqual(t, time.Since(begin), manualTimeout)
			var out bytes.Buffer
			list.print(&out, false)
			require.Equal(t, "NAME   ADDRESS   SEEN  HARDWARE  MODELS  NOTE\nalpha  10.0.0.1  -     -         -       this node\n"+
				"the nodes added by address are not known now: "+why+"\n", out.String())
			require.Contains(t, list.reads(false), why)
			n.close()
			synctest.Wait()
		})
	}
}

func TestWithoutManualNodesNothingIsAddedOrRemovedAndItIsSaid(t *testing.T) {
	ln, err := listen(appdir.ControlEndpoints(home(t)))
	require.NoError(t, err)
	s := shareOn(t, ln)
	b := s.serveBroker()
	down := `"error":{"code":-32000,"message":"manual-nodes not available"}`
	a := nodeWith(down)
	go a.serve(b.Peer) // ends with the connection
	for _, args := range [][]string{{"node", "remove", "desk"}, {"node", "add", "10.0.0.5"}} {
		require.Equal(t, ran{exitFailed, "", "nvpair: " + manualDown + "\n"}, run("", args...))
	}
}

// TestManualNodesMayGoDownAtAnyTime: after the list was asked for, too.
func TestManualNodesMayGoDownAtAnyTime(t *testing.T) {
	ln, err := listen(appdir.ControlEndpoints(home(t)))
	require.NoError(t, err)
	s := shareOn(t, ln)
	b := s.serveBroker()
	a := nodeWith(`"result":{"nodes":[{"id":"desk","name":"desk","address":"10.0.0.5"}]}`)
	a["node/add"] = `"error":{"code":-32000,"message":"manual-nodes not available"}`
	a["node/remove"] = `"error":{"code":-32000,"message":"manual-nodes call failed: no answer"}`
	go a.serve(b.Peer) // ends with the connection
	require.Equal(t, ran{exitFailed, "", "nvpair: " + manualDown + "\n"}, run("", "node", "add", "10.0.0.6"))
	require.Equal(t, ran{exitFailed, "", "nvpair: " + manualSilent + "\n"}, run("", "node", "remove", "desk"))
}

func TestARemovedNodeIsNamedWithItsAddress(t *testing.T) {
	ln, err := listen(appdir.ControlEndpoints(home(t)))
	require.NoError(t, err)
	s := shareOn(t, ln)
	b := s.serveBroker()
	a := nodeWith(`"result":{"nodes":[{"id":"zwei","name":"zwei","address":"10.77.0.31"}]}`)
	a["node/remove"] = `"result":{"removed":true}`
	go a.serve(b.Peer) // ends with the connection
	require.Equal(t, ran{exitOK, "removed zwei (10.77.0.31)\n", ""}, run("", "node", "remove", "zwei"))
}
