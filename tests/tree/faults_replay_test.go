// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tree

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/shared/serviceerror"
	"nvpair/tests/harness"
)

// A new scanner knows nothing. The broker tells it what this node advertises, and
// nobody who watches the directory loses a node meanwhile.
func TestAfterAKillOfTheScannerTheDirectoryIsAsBefore(t *testing.T) {
	t.Parallel()
	tr := startShort(t, "--settings-path="+fake(t, "watches-the-directory"))
	tr.must("discovery:subscribe", "", nil)
	tr.awaitAnnounced()
	tr.awaitErrorsService(1)
	before := tr.worker("scanner").PID
	tr.signal(before, syscall.SIGKILL)
	tr.awaitOther("scanner", before)
	tr.awaitErrorsService(2)
	pause(2 * time.Second) // twice what stale nodes have
	tr.requireNeverWithout("alpha")
	require.Contains(t, string(tr.call("discovery:get-nodes", "").Result), `"id":"alpha"`)
	tr.shutDown()
}

// awaitErrorsService waits until scanners have registered the errors service so
// often, and the directory that the fake watches has it.
func (tr *tree) awaitErrorsService(times int) {
	tr.t.Helper()
	registered := regexp.MustCompile(`INFO service registered service=er port=14319`)
	watched := regexp.MustCompile(`(?m)^notification discovery:nodes (.*)$`)
	harness.Eventually(tr.t, patience, "the errors service is in the directory", func() bool {
		stderr := tr.p.Stderr()
		lists := watched.FindAllStringSubmatch(stderr, -1)
		return len(registered.FindAllString(stderr, -1)) == times && len(lists) > 0 &&
			strings.Contains(lists[len(lists)-1][1], `"er":{"port":14319}`)
	})
}

// requireNeverWithout proves that no list of nodes was without that one, from the
// first that had it.
func (tr *tree) requireNeverWithout(node string) {
	tr.t.Helper()
	had := false
	for _, list := range tr.notifications("discovery:nodes-changed") {
		has := slices.Contains(nodesIn(tr.t, list), node)
		require.True(tr.t, has || !had, "%s is missing in %s", node, list)
		had = has
	}
	require.True(tr.t, had, "%s was in no list", node)
}

// Nodes that a crashed scanner knew have some time to be found again (DEC-114).
func TestANodeThatTheNextScannerDoesNotFindIsDroppedLater(t *testing.T) {
	t.Parallel()
	const staleAfter = 1500 * time.Millisecond
	tr := startShort(t, "--stale-after="+staleAfter.String(), "--scanner-path="+fake(t, "finds-fewer-nodes"))
	tr.must("discovery:subscribe", "", nil)
	both := []string{"goes", "stays"}
	tr.awaitNodes(both...)
	before := tr.worker("scanner").PID
	seen := len(tr.notifications("discovery:nodes-changed"))
	killed := time.Now()
	tr.signal(before, syscall.SIGKILL)
	tr.awaitOther("scanner", before)
	harness.Eventually(t, patience, "the next scanner has announced what it found", func() bool {
		return len(tr.notifications("discovery:nodes-changed")) > seen
	})
	require.Equal(t, both, nodesIn(t, tr.notifications("discovery:nodes-changed")[seen]), "both have some time")
	tr.awaitNodes("stays")
	require.Greater(t, time.Since(killed), staleAfter, "dropped too early")
	var answer struct{ Nodes json.RawMessage }
	tr.must("discovery:get-nodes", "", &answer)
	require.Equal(t, []string{"stays"}, nodesIn(t, answer.Nodes))
	tr.requireNeverWithout("stays")
	tr.shutDown()
}

// awaitNodes waits until the newest list that the client got has just these.
func (tr *tree) awaitNodes(names ...string) {
	tr.t.Helper()
	harness.Eventually(tr.t, patience, "the nodes are "+strings.Join(names, ", "), func() bool {
		lists := tr.notifications("discovery:nodes-changed")
		return len(lists) > 0 && slices.Equal(names, nodesIn(tr.t, lists[len(lists)-1]))
	})
}

// nodesIn returns the ids in a list of nodes.
func nodesIn(t *testing.T, list json.RawMessage) (ids []string) {
	t.Helper()
	var nodes []struct{ ID string }
	require.NoError(t, json.Unmarshal(list, &nodes), "%s", list)
	for _, node := range nodes {
		ids = append(ids, node.ID)
	}
	return ids
}

// A new store knows nothing either. What the broker itself has to report is there
// again; what others reported is gone until they report it again (DEC-115).
func TestAfterAKillOfTheErrorStoreTheBrokersOwnEntriesAreBack(t *testing.T) {
	t.Parallel()
	tr := startShort(t, "--healthy-after=1m")
	tr.awaitAnnounced()
	for _, name := range []string{"settings", "scanner"} {
		killed := tr.worker(name).PID
		tr.signal(killed, syscall.SIGKILL)
		tr.awaitOther(name, killed)
		tr.awaitEntry(name, "signal: killed")
	}
	tr.must("errors:report", `{"id":"client:x","message":"x"}`, nil)
	tr.awaitErrors("has what the client reported", func(list []serviceerror.ServiceError) bool { return len(list) == 3 })

	seen := len(tr.notifications("errors:update"))
	killed := tr.worker("errors").PID
	tr.signal(killed, syscall.SIGKILL)
	harness.Eventually(t, patience, "the client's list is emptied", func() bool {
		return len(tr.notifications("errors:update")) > seen
	})
	require.Equal(t, "[]", string(tr.notifications("errors:update")[seen]))
	tr.awaitErrors("is filled again", func(list []serviceerror.ServiceError) bool { return len(list) == 2 })
	for _, name := range []string{"settings", "scanner"} {
		tr.awaitEntry(name, "signal: killed")
	}
	tr.requireNeverReported("errors")

	var list []serviceerror.ServiceError
	tr.must("errors:get-initial", "", &list)
	require.Len(t, list, 2)
	require.NotEqual(t, killed, tr.awaitOther("errors", killed).PID)
	tr.must("errors:report", `{"id":"client:y","message":"y"}`, nil)
	tr.awaitErrors("takes new entries", func(list []serviceerror.ServiceError) bool { return len(list) == 3 })
	tr.shutDown()
}
