// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/appdir"
	"nvpair/shared/brokerapi"
	"nvpair/shared/discovery"
	"nvpair/shared/nodeinfo"
	"nvpair/shared/serviceerror"
	"nvpair/tests/harness"
)

const (
	inventoryAddr    = "127.0.0.1:14318"
	inventoryRequest = "GET " + nodeinfo.Path + " HTTP/1.1\r\nHost: x\r\n\r\n"
)

// inventory asks the route on a new connection; nil is no answer.
func inventory(t *testing.T, h *harness.Host) *nodeinfo.NodeInfo {
	t.Helper()
	conn, err := h.Dial("tcp", inventoryAddr)
	if err != nil {
		return nil
	}
	defer conn.Close()
	info, err := inventoryOn(conn)
	if err != nil {
		return nil
	}
	return info
}

func inventoryOn(conn net.Conn) (*nodeinfo.NodeInfo, error) {
	if err := conn.SetDeadline(time.Now().Add(answerWithin)); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, inventoryRequest); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	info := new(nodeinfo.NodeInfo)
	return info, json.NewDecoder(resp.Body).Decode(info)
}

// awaitPort waits until the client's list has that port for node-info, 0 for none.
func (tr *tree) awaitPort(port int) {
	tr.t.Helper()
	harness.Eventually(tr.t, patience, "the list has the inventory's port, or none", func() bool {
		var list discovery.AvailableNodes
		tr.must("discovery:get-nodes", "", &list)
		return len(list.Nodes) == 1 && list.Nodes[0].Port == port
	})
}

func TestTheInventoryOfATreeTellsItsNode(t *testing.T) {
	t.Parallel()
	tr := startReal(t, nil)
	tr.awaitPort(discovery.PortNodeInfo)
	id, err := appdir.NodeID(tr.h.DataDir)
	require.NoError(t, err)
	var info *nodeinfo.NodeInfo
	harness.Eventually(t, patience, "all is in the answer", func() bool {
		info = inventory(t, tr.h)
		return info != nil && info.ClusterUUID != nil && info.Services["ni"] == 14318 && info.Services["er"] == 14319
	})
	require.Equal(t, id, info.HostUUID)
	require.Empty(t, *info.ClusterUUID, "it is in no cluster, and knows it")
	require.NotNil(t, info.GPUs)
	require.NotNil(t, info.Memory)
	require.NotZero(t, info.Memory.Total)
	require.NotZero(t, info.Memory.InUse)
	require.Equal(t, info.TelemetryValid, slices.ContainsFunc(info.GPUs, func(g nodeinfo.GPU) bool { return g.VRAM > 0 }))
	tr.shutDown()
	require.Nil(t, inventory(t, tr.h))
}

func TestAKilledInventoryIsWithdrawnAndComesBack(t *testing.T) {
	t.Parallel()
	tr := startReal(t, nil)
	for range 2 {
		tr.awaitPort(discovery.PortNodeInfo)
		pid := tr.worker("node-info").PID
		tr.signal(pid, syscall.SIGKILL)
		tr.awaitPort(0)
		tr.awaitOther("node-info", pid)
	}
	tr.awaitPort(discovery.PortNodeInfo)
	info := inventory(t, tr.h)
	require.NotNil(t, info)
	harness.Eventually(t, patience, "the new one has been told everything", func() bool {
		info = inventory(t, tr.h)
		return info != nil && info.ClusterUUID != nil && info.Services["ni"] == 14318 && info.Services["er"] == 14319
	})
	tr.unchanged("scanner", "errors", "settings", "nvpair-proxy", "scheduler")
	tr.shutDown()
}

// TestTheSecondNodeOfAMachineDoesWithoutAnInventory: its port is the first one's.
// Nothing else of the second suffers but the error store, whose port is taken as
// well.
func TestTheSecondNodeOfAMachineDoesWithoutAnInventory(t *testing.T) {
	t.Parallel()
	first := startReal(t, nil)
	first.awaitPort(discovery.PortNodeInfo)
	firstID, err := appdir.NodeID(first.h.DataDir)
	require.NoError(t, err)

	args := []string{"--healthy-after=1m"}
	for _, w := range supervised {
		args = append(args, "--"+w.flag+"="+filepath.Join(harness.Bin(t), w.binary))
	}
	cmd := first.h.Command(harness.Program(t, "tests/tree/shortbroker"), args...)
	cmd.Env = append(cmd.Env, "NVPAIR_DATA_DIR="+filepath.Join(first.h.Dir, "second"))
	second := follow(t, first.h, first.h.Start(cmd))
	state := second.awaitWorker("node-info", "has used up its restarts", func(w brokerapi.Worker) bool {
		return w.State == brokerapi.StateExhausted
	})
	require.Equal(t, "exit status 1", state.LastEnd)
	second.p.AwaitStderr(`\[nvpair-node-info\] ERROR ended err="bind port 14318: .*address already in use; free it or choose another with --port"`,
		patience)
	second.awaitPort(0)
	second.unchanged("scanner", "settings")
	second.must("settings/get-cluster-id", "", nil)

	info := inventory(t, first.h)
	require.NotNil(t, info)
	require.Equal(t, firstID, info.HostUUID)
	first.unchanged("scanner", "errors", "settings", "node-info")

	second.must("shutdown", "", nil)
	require.Equal(t, 0, second.p.AwaitExit(teardownWithin))
	first.shutDown()
}

func TestClientsOfTheInventoryThatMisbehaveDisturbNobody(t *testing.T) {
	t.Parallel()
	tr := startReal(t, nil)
	tr.awaitPort(discovery.PortNodeInfo)
	pid := tr.worker("node-info").PID
	before := descriptors(t, pid)

	var held []net.Conn
	for i, text := range []string{
		"", "G", "GET /v1/node-info HTTP/1.1\r\nHost: x", "\x16\x03\x01", "\r\n\r\n\r\n", "garbage\r\n\r\n",
		"GET /v1/node-info HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("y", 100_000),
		"POST /v1/node-info HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\nx",
	} {
		for range 50 {
			conn, err := tr.h.Dial("tcp", inventoryAddr)
			require.NoError(t, err, i)
			held = append(held, conn)
			require.NoError(t, conn.SetWriteDeadline(time.Now().Add(time.Second)))
			_, _ = io.WriteString(conn, text) // it may have been refused by now
		}
	}
	begin := time.Now()
	require.NotNil(t, inventory(t, tr.h))
	t.Logf("an answer beside %d connections that misbehave: %v", len(held), time.Since(begin))
	require.Less(t, time.Since(begin), 5*time.Second)

	var wg sync.WaitGroup
	for range 500 {
		conn, err := tr.h.Dial("tcp", inventoryAddr)
		require.NoError(t, err)
		held = append(held, conn)
		wg.Go(func() {
			if _, err := inventoryOn(conn); err != nil {
				t.Errorf("one of 500 at once: %v", err)
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, descriptors(t, pid), before+1024+16) // as many as node-info has from one address
	for _, conn := range held {
		require.NoError(t, conn.Close())
	}
	harness.Eventually(t, patience, "the connections are gone", func() bool { return descriptors(t, pid) <= before+8 })
	tr.unchanged("node-info", "scanner")
	require.Empty(t, tr.notificationsOf(serviceerror.CrashID("node-info")))
	tr.shutDown()
}

// notificationsOf returns the lists of errors that name an entry.
func (tr *tree) notificationsOf(id string) (lists []json.RawMessage) {
	for _, list := range tr.notifications("errors:update") {
		if strings.Contains(string(list), id) {
			lists = append(lists, list)
		}
	}
	return lists
}
