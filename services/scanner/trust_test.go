// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/clustertrust"
	"nvpair/internal/clustertrust/clustertest"
	"nvpair/internal/mdns"
	"nvpair/shared/discovery"
)

// engines is a stand-in for a member's engine manager.
type engines struct {
	body    atomic.Pointer[string]
	asked   atomic.Int32 // connections that were made, whatever came of them
	refused atomic.Int32
}

func (e *engines) says(body string) { e.body.Store(&body) }

// engines starts one at ip, which serves the members of that node's cluster alone.
func (l *lan) engines(ip string, m *clustertest.Member, body string) *engines {
	e := new(engines)
	e.says(body)
	trust := clustertrust.Open(m.Dir, slog.New(slog.DiscardHandler))
	l.serve(ip+":14322", trust.Server(), func(w http.ResponseWriter, r *http.Request) {
		e.asked.Add(1)
		if _, err := trust.Caller(r.TLS); err != nil {
			e.refused.Add(1)
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		_, _ = io.WriteString(w, *e.body.Load())
	})
	return e
}

// member announces a node of a cluster with a node-info and an engine manager.
func (l *lan) member(name, ip string, m *clustertest.Member) (p *mdns.Publication, leave, crash func()) {
	l.upIn(ip, m.UUID, m.UUID)
	p, leave, crash = l.node(name, ip, m.UUID)
	require.NoError(l.t, p.SetTXT(append(l.record(ip, m.UUID), "cluster-uuid="+m.UUID, "em=14322")))
	return p, leave, crash
}

// until returns the first event of that method about a node that is as wanted.
func (l *lan) until(method, hostUUID string, wanted func(discovery.DirectoryNode) bool) discovery.DirectoryNode {
	l.t.Helper()
	for {
		if n, _ := l.after(method, hostUUID); wanted(n) {
			return n
		}
	}
}

func in(m *clustertest.Member) func(*Config) { return func(c *Config) { c.ClusterDir = m.Dir } }

const twoModels = `{"models":["a","b"],"modelsByEngine":{"ollama":["a","b"]},"loadedByEngine":{"ollama":["a"]}}`

func TestAMemberIsTrustedAndTellsItsModels(t *testing.T) {
	self, peer := clustertest.New(t), clustertest.New(t)
	clustertest.Pair(self, peer)
	inLANWith(t, in(self), func(l *lan) {
		e := l.engines("10.0.0.2", peer, twoModels)
		l.member("beta", "10.0.0.2", peer)
		n := l.until(discovery.NotifyNodeUpdated, peer.UUID, func(n discovery.DirectoryNode) bool { return n.Models != nil })
		require.True(l.t, n.Trusted)
		require.Equal(l.t, peer.UUID, n.ClusterUUID)
		require.Equal(l.t, map[string][]string{"ollama": {"a", "b"}}, n.ModelsByEngine)
		require.Equal(l.t, map[string][]string{"ollama": {"a"}}, n.LoadedByEngine)

		e.says(`{"models":["b","a","a"],"modelsByEngine":{"ollama":["b","a"]},"loadedByEngine":{"ollama":["a"]}}`)
		l.without(discovery.NotifyNodeUpdated, time.Minute) // the same set is no news
		e.says(`{"models":[],"modelsByEngine":{"ollama":[]},"loadedByEngine":{"ollama":[]}}`)
		n = l.until(discovery.NotifyNodeUpdated, peer.UUID, func(n discovery.DirectoryNode) bool { return len(n.Models) == 0 })
		require.Equal(l.t, map[string][]string{"ollama": {}}, n.ModelsByEngine, "that there is none is known")
		require.Zero(l.t, e.refused.Load())
	})
}

func TestWhoIsUnpinnedIsNotTrustedAndNotAsked(t *testing.T) {
	self, peer := clustertest.New(t), clustertest.New(t)
	clustertest.Pair(self, peer)
	self.Admit("c1", 1)
	inLANWith(t, in(self), func(l *lan) {
		e := l.engines("10.0.0.2", peer, twoModels)
		l.member("beta", "10.0.0.2", peer)
		l.until(discovery.NotifyNodeUpdated, peer.UUID, func(n discovery.DirectoryNode) bool { return n.Models != nil })
		self.Unpin(peer)
		began := time.Now()
		n := l.until(discovery.NotifyNodeUpdated, peer.UUID, func(n discovery.DirectoryNode) bool { return !n.Trusted })
		require.Less(l.t, time.Since(began), 4*time.Second, "without a word from the broker")
		require.Nil(l.t, n.Models)
		asked := e.asked.Load()
		l.without(`"trusted":true,"services":{"em"`, time.Minute)
		require.Equal(l.t, asked, e.asked.Load())
	})
}

func TestAStrangerIsNotAskedForItsModels(t *testing.T) {
	self, stranger := clustertest.New(t), clustertest.New(t)
	self.Admit("c1", 1)
	stranger.Pin(self)
	inLANWith(t, in(self), func(l *lan) {
		e := l.engines("10.0.0.2", stranger, twoModels)
		l.member("beta", "10.0.0.2", stranger)
		n, _ := l.after(discovery.NotifyNodeDiscovered, stranger.UUID)
		require.False(l.t, n.Trusted)
		l.without(`"models":`, time.Minute)
		require.Zero(l.t, e.asked.Load())
	})
}

// Whoever claims to be a member must show its certificate before it is believed
// anything.
func TestAForgedMembersModelsAreNotTaken(t *testing.T) {
	self, peer, forger := clustertest.New(t), clustertest.New(t), clustertest.New(t)
	clustertest.Pair(self, peer)
	forger.Pin(self)
	inLANWith(t, in(self), func(l *lan) {
		l.engines("10.0.0.66", forger, twoModels)
		l.upIn("10.0.0.66", other, peer.UUID)
		p, _, _ := l.node("beta", "10.0.0.66", other)
		require.NoError(l.t, p.SetTXT(append(l.record("10.0.0.66", other), "cluster-uuid="+peer.UUID, "em=14322")))
		l.after(discovery.NotifyNodeDiscovered, other)
		l.without(`"models":`, time.Minute)
	})
}

func TestThisNodeSaysOfWhichClusterItIs(t *testing.T) {
	self, peer := clustertest.New(t), clustertest.New(t)
	inLANWith(t, in(self), func(l *lan) {
		require.Equal(l.t, ok, l.Call(discovery.MethodReloadTrust, "null"))
		l.Quiet() // nothing changed
		self.Pin(peer)
		require.Equal(l.t, ok, l.Call(discovery.MethodReloadTrust, "null"))
		n := l.event(discovery.NotifyNodeUpdated)
		require.Equal(l.t, []any{self.UUID, self.UUID, true}, []any{n.HostUUID, n.ClusterUUID, n.Trusted})
		self.Unpin(peer)
		require.Equal(l.t, ok, l.Call(discovery.MethodReloadTrust, "null"))
		n = l.event(discovery.NotifyNodeUpdated)
		require.Equal(l.t, []any{"", false}, []any{n.ClusterUUID, n.Trusted})
	})
}

func TestThisNodesModelsAreAskedOverLoopback(t *testing.T) {
	inLAN(t, func(l *lan) {
		l.serve("127.0.0.1:14322", nil, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, twoModels) })
		require.Equal(l.t, ok, l.Call(discovery.MethodRegister, `{"service":"em","port":14322}`))
		n := l.until(discovery.NotifyNodeUpdated, uuid, func(n discovery.DirectoryNode) bool { return n.Models != nil })
		require.Equal(l.t, []string{"a", "b"}, n.Models)
	})
}

// lastPlaces runs a scanner until it has saved where a member is.
func lastPlaces(t *testing.T, self, peer *clustertest.Member) string {
	path := filepath.Join(filepath.Dir(self.Dir), membersFile)
	inLANWith(t, in(self), func(l *lan) {
		l.member("beta", "10.0.0.2", peer)
		l.until(discovery.NotifyNodeUpdated, peer.UUID, func(n discovery.DirectoryNode) bool { return n.GPUs != nil })
		l.without("no such event", 2*sweepEvery)
		raw, err := os.ReadFile(path)
		require.NoError(l.t, err)
		require.Contains(l.t, string(raw), `"10.0.0.2"`)
		info, err := os.Stat(path)
		require.NoError(l.t, err)
		l.without("no such event", 10*sweepEvery)
		again, err := os.Stat(path)
		require.NoError(l.t, err)
		require.Equal(l.t, info.ModTime(), again.ModTime(), "written only when it is news")
	})
	return path
}

func TestAMemberIsFoundAtItsLastPlaceWithoutMulticast(t *testing.T) {
	self, peer := clustertest.New(t), clustertest.New(t)
	clustertest.Pair(self, peer)
	self.Admit("c1", 1)
	path := lastPlaces(t, self, peer)
	inLANWith(t, in(self), func(l *lan) {
		l.without(discovery.NotifyNodeDiscovered, time.Minute) // it does not answer
		l.upIn("10.0.0.2", peer.UUID, peer.UUID)
		n, took := l.after(discovery.NotifyNodeDiscovered, peer.UUID)
		require.Less(l.t, took, 10*time.Second)
		require.Equal(l.t, []any{"beta", "10.0.0.2", true}, []any{n.Name, n.IP, n.Trusted})
		l.without(discovery.NotifyNodeRemoved, 5*time.Minute)
		l.down("10.0.0.2")
		l.after(discovery.NotifyNodeRemoved, peer.UUID)
		l.upIn("10.0.0.2", other, "") // a stranger got its address
		l.without(discovery.NotifyNodeDiscovered, time.Minute)

		self.Unpin(peer)
		l.without(discovery.NotifyNodeDiscovered, 3*time.Second) // until it is noticed
		l.down("10.0.0.2")
		l.upIn("10.0.0.2", peer.UUID, peer.UUID)
		l.without(discovery.NotifyNodeDiscovered, time.Minute)
		raw, err := os.ReadFile(path)
		require.NoError(l.t, err)
		require.False(l.t, strings.Contains(string(raw), peer.UUID), "whoever is no member is forgotten")
	})
}

func TestAMemberThatWasPairedSinceTheStartIsFoundAtItsLastPlace(t *testing.T) {
	self, peer := clustertest.New(t), clustertest.New(t)
	inLANWith(t, in(self), func(l *lan) {
		_, _, crash := l.member("beta", "10.0.0.2", peer)
		l.after(discovery.NotifyNodeUpdated, peer.UUID)
		clustertest.Pair(self, peer)
		l.until(discovery.NotifyNodeUpdated, peer.UUID, func(n discovery.DirectoryNode) bool { return n.Trusted })
		l.without(discovery.NotifyNodeRemoved, 2*sweepEvery)
		crash()
		l.down("10.0.0.2")
		l.after(discovery.NotifyNodeRemoved, peer.UUID)
		l.upIn("10.0.0.2", peer.UUID, peer.UUID)
		n, _ := l.after(discovery.NotifyNodeDiscovered, peer.UUID)
		require.Equal(l.t, "10.0.0.2", n.IP)
	})
}

func TestADamagedMemoryOfPlacesIsNone(t *testing.T) {
	self, peer := clustertest.New(t), clustertest.New(t)
	clustertest.Pair(self, peer)
	path := filepath.Join(filepath.Dir(self.Dir), membersFile)
	for _, text := range []string{"", "{", `[]`, `{"peers":[{}]}`, `{"peers":[{"hostUuid":"u","addresses":["127.0.0.1","x"]}]}`} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		m := members{path: path, log: slog.New(slog.DiscardHandler)}
		m.load()
		require.Empty(t, m.known, text)
	}
}

func TestWhatOthersSayOfTheirModelsIsBounded(t *testing.T) {
	long := `"` + strings.Repeat("m", 300) + `"`
	list := "[" + strings.Repeat(long+",", 1000) + `"ok"]`
	var by []string
	for i := range 100 {
		by = append(by, fmt.Sprintf(`"e%02d":["a"]`, i))
	}
	l, err := parseModels([]byte(`{"models":` + list + `,"modelsByEngine":{` + strings.Join(by, ",") + `}}`))
	require.NoError(t, err)
	require.Empty(t, l.Models, "names that are too long are left out, and the sum is bounded")
	require.Len(t, l.By, maxModelEngines)
	require.Nil(t, l.Loaded)
}
