// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/applog/applogtest"
	"nvpair/shared/discovery"
)

func node(uuid, nodeName string) discovery.DirectoryNode {
	return discovery.DirectoryNode{HostUUID: uuid, Name: nodeName}
}

// store is a node store that counts its changes.
type store struct {
	*nodeStore
	changes int
	log     *applogtest.Buffer
}

func newStore() *store {
	s := &store{log: new(applogtest.Buffer)}
	s.nodeStore = newNodeStore(slog.New(slog.NewTextHandler(s.log, nil)), func() { s.changes++ })
	return s
}

func (s *store) names() []string {
	names := []string{}
	for _, n := range s.available() {
		names = append(names, n.Name)
	}
	return names
}

func TestEveryUpsertIsAChange(t *testing.T) {
	s := newStore()
	require.Equal(t, []discovery.AvailableNode{}, s.available(), "never null")
	s.upsert(node("u1", "b"), 1)
	s.upsert(node("u2", "a"), 1)
	s.upsert(node("u2", "a"), 1) // equal, but seen again
	require.Equal(t, 3, s.changes)
	require.Equal(t, []string{"a", "b"}, s.names())
	s.upsert(node("u1", "renamed"), 1)
	require.Equal(t, []string{"a", "renamed"}, s.names(), "a record is known by its uuid")
}

func TestANodeWithoutAKeyIsRefused(t *testing.T) {
	s := newStore()
	s.upsert(node("", "nameless"), 1)
	require.Zero(t, s.changes)
	require.Empty(t, s.available())
	require.Contains(t, s.log.String(), "level=WARN")
}

func TestRemovingWhatIsNotThereIsNoChange(t *testing.T) {
	s := newStore()
	s.remove("u1")
	require.Zero(t, s.changes)
	s.upsert(node("u1", "a"), 1)
	s.remove("u2")
	require.Equal(t, 1, s.changes)
	s.remove("u1")
	s.remove("u1")
	require.Equal(t, 2, s.changes)
	require.Empty(t, s.available())
}

func TestTheDirectoryIsBounded(t *testing.T) {
	s := newStore()
	for i := range maxNodes {
		s.upsert(node(fmt.Sprint(i), "n"), 1)
	}
	s.upsert(node("one more", "n"), 1)
	require.Len(t, s.available(), maxNodes)
	require.Equal(t, maxNodes, s.changes)
	require.Contains(t, s.log.String(), "directory is full")

	s.upsert(node("0", "still updated"), 1)
	require.Equal(t, maxNodes+1, s.changes)
	s.remove("1")
	s.upsert(node("one more", "n"), 1)
	require.Len(t, s.available(), maxNodes)
}

func TestWhatNoNewScannerAnnouncedIsDropped(t *testing.T) {
	s := newStore()
	s.upsert(node("u1", "old"), 1)
	s.upsert(node("u2", "again"), 1)
	s.upsert(node("u2", "again"), 2)
	s.upsert(node("u3", "new"), 3)
	s.dropOlder(2)
	require.Equal(t, []string{"again", "new"}, s.names())
	require.Equal(t, 5, s.changes)
	s.dropOlder(2)
	require.Equal(t, 5, s.changes)
}

// TestANodeAnnouncedWhileOthersAreDroppedStays: a change hook stands for whatever
// comes between the choice of a node and its removal.
func TestANodeAnnouncedWhileOthersAreDroppedStays(t *testing.T) {
	s := newStore()
	s.upsert(node("u1", "a"), 1)
	s.upsert(node("u2", "b"), 1)
	s.changed = func() {
		s.changed = func() {}
		s.upsert(node("u1", "a"), 2)
		s.upsert(node("u2", "b"), 2)
	}
	s.dropOlder(2)
	require.Equal(t, []string{"a", "b"}, s.names())
}

// TestTheClientsViewOfANode compares a record with its projection (BR-38).
func TestTheClientsViewOfANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a fixed time: 2000-01-01 UTC
		s := newStore()
		for _, event := range []string{
			`{"hostUuid":"u3","name":"charlie","ip":"10.0.0.3","ips":["10.0.0.3","fd00::3"],"clusterUuid":"c","trusted":true,
			  "services":{"ni":{"port":14318},"ol":{"port":11434}},"gpus":[{"x":1}],"lastSeen":7,
			  "models":["a","b"],"modelsByEngine":{"ollama":["a"],"lmstudio":[]},"loadedByEngine":{"ollama":[]},"later":true}`,
			`{"hostUuid":"u2","name":"bravo","ip":"10.0.0.2","ips":["10.0.0.2"],"trusted":false,"services":{"er":{"port":14319}}}`,
			`{"hostUuid":"u1","name":"bravo","ip":"","trusted":false,"services":{}}`,
			`{"hostUuid":"u0","name":"zulu"}`,
		} {
			var n discovery.DirectoryNode
			require.NoError(t, json.Unmarshal([]byte(event), &n))
			s.upsert(n, 1)
		}
		var got bytes.Buffer
		require.NoError(t, json.Indent(&got, encode(discovery.AvailableNodes{Nodes: s.available()}), "", "  "))
		got.WriteByte('\n')
		golden(t, "available.json", got.Bytes())
	})
}

func TestLastSeenIsTheTimeOfTheLastEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.upsert(node("u", "n"), 1)
		first := s.available()[0].LastSeenSeconds
		require.Equal(t, time.Now().Unix(), first)
		<-time.After(90 * time.Second)
		require.Equal(t, first, s.available()[0].LastSeenSeconds, "reading is no event")
		s.upsert(node("u", "n"), 1)
		require.Equal(t, first+90, s.available()[0].LastSeenSeconds)
	})
}

func TestTheDirectoryIsFilteredByAnyOfTheServices(t *testing.T) {
	s := newStore()
	with := func(uuid string, services ...string) {
		n := node(uuid, "same name")
		n.Services = map[string]discovery.Service{}
		for _, code := range services {
			n.Services[code] = discovery.Service{Port: 1}
		}
		s.upsert(n, 1)
	}
	with("u3", "er")
	with("u1", "wl", "er")
	with("u2", "wl", "cl")
	with("u4")
	for _, tt := range []struct {
		services []string
		want     []string
	}{
		{nil, []string{"u1", "u2", "u3", "u4"}},
		{[]string{}, []string{"u1", "u2", "u3", "u4"}},
		{[]string{"er"}, []string{"u1", "u3"}},
		{[]string{"cl", "er"}, []string{"u1", "u2", "u3"}},
		{[]string{"ec"}, nil},
		{[]string{""}, nil},
	} {
		var got []string
		for _, n := range s.directory(tt.services).Nodes {
			got = append(got, n.HostUUID)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("directory(%q) = %v, want %v", tt.services, got, tt.want)
		}
	}
	require.JSONEq(t, `{"nodes":[]}`, string(encode(s.directory([]string{"ec"}))))
}

func TestScannerEventsReachTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		scanner := tr.join(workerScanner, 1)
		scanner.Send(
			notification("discovery:node-discovered", `{"node":{"hostUuid":"u1","name":"a"}}`),
			notification("discovery:node-discovered", `{"node":{"hostUuid":"u2","name":"b"}}`),
			notification("discovery:node-updated", `{"node":{"hostUuid":"u3","name":"c"}}`),
			notification("discovery:node-removed", `{"node":{"hostUuid":"u2","name":"b"}}`),
			notification("discovery:node-discovered", `{"node":7}`),
			notification("discovery:no-such-event", "{}"),
		)
		synctest.Wait()
		require.Contains(t, tr.client.Call("discovery:get-nodes", ""),
			`"nodes":[{"id":"a","name":"a","hostUuid":"u1","ipAddress":"","port":0,"lastSeen":946684800,"trusted":false},{"id":"c",`)
		require.Contains(t, tr.log.String(), "undecodable notification dropped worker=scanner")
		require.Contains(t, tr.log.String(), "notification dropped worker=scanner method=discovery:no-such-event")
	})
}

// TestNodesOfACrashedScannerAreDroppedAfterTheirTime: see DEC-114.
func TestNodesOfACrashedScannerAreDroppedAfterTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		tr.client.Call("discovery:subscribe", "")
		tr.client.Expect(notification("discovery:nodes-changed", "[]"))
		first := tr.join(workerScanner, 1)
		for _, n := range []string{"a", "b"} {
			first.Send(notification("discovery:node-discovered", `{"node":{"hostUuid":"`+n+`","name":"`+n+`"}}`))
			tr.client.Next()
		}
		tr.crash(first)
		tr.client.Idle() // the claims stay

		second := tr.join(workerScanner, 2)
		begin := time.Now()
		<-time.After(70 * time.Second)
		second.Send(notification("discovery:node-updated", `{"node":{"hostUuid":"b","name":"b"}}`))
		require.Contains(t, tr.client.Next(), `"id":"a"`)
		line := tr.client.Next()
		require.Equal(t, 75*time.Second, time.Since(begin))
		require.NotContains(t, line, `"id":"a"`)
		require.Contains(t, line, `"id":"b"`)
	})
}

// TestALinkEndsWithoutWaitingForStaleNodes: a restarted scanner that drops its
// link is noticed at once.
func TestALinkEndsWithoutWaitingForStaleNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := plant(t)
		tr.nodes.upsert(node("u", "n"), 1)
		scanner := tr.join(workerScanner, 2)
		begin := time.Now()
		scanner.leave()
		require.Zero(t, time.Since(begin))
		require.Len(t, tr.nodes.available(), 1)
	})
}
