// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lan

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/tests/harness"
)

// attacked are two nodes that know each other, and an attacker on their network.
func attacked(t *testing.T) (mallory *attacker, alpha, beta *node) {
	t.Helper()
	bridge := harness.NewBridge(t)
	first, second := harness.NewHost(t, "alpha"), harness.NewHost(t, "beta")
	bridge.Attach(first, "192.168.7.1/24")
	bridge.Attach(second, "192.168.7.2/24")
	alpha, beta = startNode(t, first), startNode(t, second)
	for _, n := range []*node{alpha, beta} {
		n.sees(appearWithin, "alpha", "beta")
		n.knowsPorts()
	}
	return newAttacker(t, bridge), alpha, beta
}

// scanner returns the process that keeps the directory.
func (n *node) scanner() (pid, restarts int) {
	n.t.Helper()
	var status struct {
		Workers []struct {
			Name          string
			PID, Restarts int
		}
	}
	n.client.MustCall("broker:status", nil, &status)
	for _, w := range status.Workers {
		if w.Name == "scanner" {
			return w.PID, w.Restarts
		}
	}
	n.t.Fatalf("%s has no scanner", n.Name)
	return 0, 0
}

// kilobytes returns what memory a process has had at most.
func kilobytes(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	require.NoError(t, err)
	match := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)
	require.NotNil(t, match)
	kb, err := strconv.Atoi(string(match[1]))
	require.NoError(t, err)
	return kb
}

// staysAt fails the test unless the node knows another under its own uuid, at its own address.
func (n *node) staysAt(other *node, address string) {
	n.t.Helper()
	i := slices.IndexFunc(n.nodes(), func(a available) bool { return a.ID == other.Name })
	require.GreaterOrEqual(n.t, i, 0, "%s has lost %s", n.Name, other.Name)
	got := n.knows(other.Name)
	require.Equal(n.t, []string{other.uuid(), address}, []string{got.HostUUID, got.IPAddress}, "%s as %s knows it", other.Name, n.Name)
}

func TestAFloodOfRecordsPushesNobodyOut(t *testing.T) {
	t.Parallel()
	mallory, alpha, beta := attacked(t)
	mallory.answer(14318, http.NotFound)
	pid, _ := alpha.scanner()
	flood := func(first int) {
		t.Helper()
		sent := 0
		harness.Eventually(t, evictWithin, "the flood to end", func() bool {
			for range 20 { // as many as a socket's buffer takes
				uuid := strconv.Itoa(first + sent)
				mallory.say("m"+uuid, attackerIP, "v=1", "uuid=flood-"+uuid, "ip="+attackerIP, "ni=14318")
				sent++
			}
			if sent%500 == 0 {
				alpha.staysAt(beta, "192.168.7.2")
				require.Less(t, len(alpha.nodes()), 100)
			}
			return sent == 10_000
		})
		require.Greater(t, len(alpha.nodes()), 2, "the flood did not arrive")
	}
	flood(0)
	once := kilobytes(t, pid)
	gamma := harness.NewHost(t, "gamma")
	mallory.bridge.Attach(gamma, "192.168.7.3/24")
	late := startNode(t, gamma)
	eventually(t, appearWithin, "a new node to be let in", func() bool {
		return alpha.knows("gamma").Port != 0 && late.knows("alpha").Port != 0
	})
	flood(10_000)
	twice := kilobytes(t, pid)
	late.staysAt(alpha, "192.168.7.1")
	alpha.staysAt(late, "192.168.7.3")
	require.Less(t, twice-once, 32<<10, "memory of the scanner grew from %d kB to %d kB", once, twice)
	alpha.staysAt(beta, "192.168.7.2")
	now, restarts := alpha.scanner()
	require.Equal(t, []int{pid, 0}, []int{now, restarts})
}

func TestAForgedGoodbyeRemovesNobody(t *testing.T) {
	t.Parallel()
	mallory, alpha, beta := attacked(t)
	whileSaying(t, 10*time.Second, func() { mallory.sayGoodbye("beta") }, func() { alpha.staysAt(beta, "192.168.7.2") })
}

func TestACopiedRecordMovesNobody(t *testing.T) {
	t.Parallel()
	mallory, alpha, beta := attacked(t)
	copied := []string{"v=1", "uuid=" + beta.uuid(), "ip=" + attackerIP, "ni=14318"}
	whileSaying(t, 20*time.Second, func() { mallory.say("beta", attackerIP, copied...) },
		func() { alpha.staysAt(beta, "192.168.7.2") })
}

func TestBadAnswersOfOneMachineHarmNoOther(t *testing.T) {
	t.Parallel()
	mallory, alpha, beta := attacked(t)
	var txt [][]string
	for i, handler := range []http.HandlerFunc{
		trickle, endless, claims(beta.uuid()),
		func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("\x00\xff{]")) },
		func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(strings.Repeat(`{"GPUs":[`, 20_000)))
		},
		func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		port := 20_001 + i
		mallory.answer(port, handler)
		txt = append(txt, []string{"v=1", fmt.Sprintf("uuid=bad-%d", i), "ip=" + attackerIP, fmt.Sprintf("ni=%d", port)})
	}
	pid, _ := alpha.scanner()
	before := kilobytes(t, pid)
	whileSaying(t, 40*time.Second, func() { // over two sweeps
		for i := range txt {
			mallory.say(fmt.Sprintf("bad%d", i), attackerIP, txt[i]...)
		}
	}, func() { alpha.staysAt(beta, "192.168.7.2") })
	require.Len(t, alpha.nodes(), 2+len(txt))
	require.Less(t, kilobytes(t, pid)-before, 64<<10)
	now, restarts := alpha.scanner()
	require.Equal(t, []int{pid, 0}, []int{now, restarts})
	beta.staysAt(alpha, "192.168.7.1")
}

// trickle sends a byte now and then, without an end.
func trickle(w http.ResponseWriter, r *http.Request) {
	ticks := time.NewTicker(200 * time.Millisecond)
	defer ticks.Stop()
	for {
		if _, err := w.Write([]byte(" ")); err != nil || http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-ticks.C:
		case <-r.Context().Done():
			return
		}
	}
}

// endless sends as fast as is taken, without an end.
func endless(w http.ResponseWriter, _ *http.Request) {
	block := []byte(`{"GPUs":[` + strings.Repeat(`{"name":"x"},`, 5000))
	for {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

func TestACopiedRecordWithTheRealAddressBehindItsOwnMovesNobody(t *testing.T) {
	t.Parallel()
	mallory, alpha, beta := attacked(t)
	copied := []string{"v=1", "uuid=" + beta.uuid(), "ip=" + attackerIP, "ips=" + attackerIP + ",192.168.7.2", "ni=14318"}
	whileSaying(t, 20*time.Second, func() { mallory.say("beta", attackerIP, copied...) },
		func() { alpha.staysAt(beta, "192.168.7.2") })
}

func TestAMachineThatAnswersAsAnotherMovesNobody(t *testing.T) {
	t.Parallel()
	mallory, alpha, beta := attacked(t)
	mallory.answer(14318, claims(beta.uuid()))
	copied := []string{"v=1", "uuid=" + beta.uuid(), "ip=" + attackerIP, "ni=14318"}
	whileSaying(t, 20*time.Second, func() { mallory.say("beta", attackerIP, copied...) },
		func() { alpha.staysAt(beta, "192.168.7.2") })
}
