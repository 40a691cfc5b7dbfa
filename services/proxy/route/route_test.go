// SPDX-License-Identifier: Apache-2.0

package route

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nodes makes a node of each word "id:model,model"; "*" in front marks the own one.
func nodes(words ...string) []Node {
	var list []Node
	for _, w := range words {
		id, models, _ := strings.Cut(w, ":")
		n := Node{ID: strings.TrimPrefix(id, "*"), Own: strings.HasPrefix(id, "*")}
		if models != "" {
			n.Models = strings.Split(models, ",")
		}
		list = append(list, n)
	}
	return list
}

func ids(c Candidates) string {
	var list []string
	for i := range c.Len() {
		list = append(list, c.At(i).ID)
	}
	return strings.Join(list, " ")
}

func listed(generation uint64, ids ...string) Ranking {
	return Ranking{Generation: generation, Nodes: ids}
}

func TestNodesAreTriedInTheSchedulersOrderThenById(t *testing.T) {
	for _, tt := range []struct {
		nodes   string
		ranking string
		want    string
	}{
		{"c a b", "", "a b c"},
		{"c a b", "b", "b a c"},
		{"c a b", "c b a", "c b a"},
		{"c a b", "x c y b", "c b a"},  // unknown ids are passed over
		{"c a b", "c b c a", "c b a"},  // the first mention counts
		{"b10 b9 B1", "", "B1 b10 b9"}, // bytes, not numbers
		{"a a b", "", "a b"},
		{"", "a b", ""},
	} {
		x := NewIndex(nodes(strings.Fields(tt.nodes)...), listed(1, strings.Fields(tt.ranking)...), NewLedger())
		if got := ids(x.All()); got != tt.want {
			t.Errorf("nodes %q, ranking %q: got %q, want %q", tt.nodes, tt.ranking, got, tt.want)
		}
	}
}

func TestOnlyOwnersOfTheModelAreCandidates(t *testing.T) {
	x := NewIndex(nodes("a:m,n", "b:n", "c", "d:m,m"), listed(1, "d", "b"), NewLedger())
	for key, want := range map[string]string{"m": "d a", "n": "b a", "": "", "M": "", "m ": ""} {
		if got := ids(x.Owners([]byte(key))); got != want {
			t.Errorf("owners of %q: got %q, want %q", key, got, want)
		}
	}
	require.Equal(t, "d b a c", ids(x.All()))
	require.Zero(t, x.Owners([]byte("nobody's")).Len())
}

func TestAPinnedOwnerIsFirstAndTheOthersFollow(t *testing.T) {
	x := NewIndex(nodes("a:m", "b:m", "c:m", "d"), listed(1, "c", "a"), NewLedger())
	c := x.Owners([]byte("m"))
	require.Equal(t, "c a b", ids(c))
	for pin, want := range map[string]string{"c": "c a b", "a": "a c b", "b": "b c a"} {
		preferred, ok := c.Prefer(pin)
		require.True(t, ok)
		require.Equal(t, want, ids(preferred))
	}
	for _, pin := range []string{"d", "", "nobody"} { // PX-54: not an owner, ignored
		same, ok := c.Prefer(pin)
		require.False(t, ok)
		require.Equal(t, "c a b", ids(same))
	}
	require.Equal(t, "c a b", ids(c), "a value of its own")
}

func TestTheOwnEngineCanBeFirst(t *testing.T) {
	x := NewIndex(nodes("a:m", "*own:m", "c:m", "d"), listed(1, "c"), NewLedger())
	require.Equal(t, "own c a d", ids(x.All().PreferOwn()))
	require.Equal(t, "own c a", ids(x.Owners([]byte("m")).PreferOwn()))
	x = NewIndex(nodes("a:m", "b:m"), Ranking{}, NewLedger())
	require.Equal(t, "a b", ids(x.All().PreferOwn()), "without one the order stays")
}

func TestNoCandidatesAreHarmless(t *testing.T) {
	l := NewLedger()
	for _, x := range []*Index{NewIndex(nil, Ranking{}, l), NewIndex(nil, listed(1, "a"), l)} {
		c, r, _ := l.Reserve(x.Owners([]byte("m")))
		require.Zero(t, c.Len())
		r.Release()
		_, ok := x.All().Prefer("a")
		require.False(t, ok)
		require.Zero(t, x.All().PreferOwn().Len())
	}
}

func TestACandidateBeyondTheLastIsABug(t *testing.T) {
	c := NewIndex(nodes("a:m", "b:m"), Ranking{}, NewLedger()).All()
	require.Panics(t, func() { c.At(2) })
}

// A random index keeps to the same rules as the slow, plain way to say them.
func TestAnyIndexKeepsToTheRules(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var list []Node
		for i, id := range rng.Perm(15)[:rng.IntN(12)] {
			n := Node{ID: fmt.Sprint("n", id), Own: i == 3}
			for range rng.IntN(4) {
				n.Models = append(n.Models, fmt.Sprint("m", rng.IntN(3)))
			}
			list = append(list, n)
		}
		var ranking Ranking
		for range rng.IntN(10) {
			ranking.Nodes = append(ranking.Nodes, fmt.Sprint("n", rng.IntN(18)))
		}
		x := NewIndex(list, ranking, NewLedger())
		var want []string
		byID := make(map[string]Node)
		for _, n := range list {
			byID[n.ID] = n
		}
		for _, id := range ranking.Nodes {
			if _, known := byID[id]; known && !slices.Contains(want, id) {
				want = append(want, id)
			}
		}
		var rest []string
		for id := range byID {
			if !slices.Contains(want, id) {
				rest = append(rest, id)
			}
		}
		slices.Sort(rest)
		want = append(want, rest...)
		require.Equal(t, strings.Join(want, " "), ids(x.All()))
		for _, model := range []string{"m0", "m1", "m2"} {
			var owners []string
			for _, id := range want {
				if slices.Contains(byID[id].Models, model) {
					owners = append(owners, id)
				}
			}
			require.Equal(t, strings.Join(owners, " "), ids(x.Owners([]byte(model))))
		}
	}
}

func TestADecisionNeedsNoMemory(t *testing.T) {
	l := NewLedger()
	var list []Node
	for i := range 512 {
		list = append(list, Node{ID: fmt.Sprintf("node-%03d", i), Models: []string{"a-model-with-a-rather-long-name:latest"}})
	}
	x := NewIndex(list, listed(1, "node-100", "node-200"), l)
	key := []byte("a-model-with-a-rather-long-name:latest")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		c, r, _ := l.Reserve(x.Owners(key))
		for i := range 5 {
			n := c.At(i)
			r.Move(n)
		}
		c, _ = c.Prefer("node-300")
		c = c.PreferOwn()
		_ = c.At(0)
		r.Release()
	}))
}

func TestATargetIsTriedOnceWhateverItsNames(t *testing.T) { // PX-50
	x := NewIndex([]Node{
		{ID: "self", Own: true, Addrs: []string{"127.0.0.1:1"}, Models: []string{"m"}},
		{ID: "self", Own: true, Addrs: []string{"127.0.0.1:2"}, Models: []string{"m", "only"}},
		{ID: "again", Addrs: []string{"127.0.0.1:1"}, Models: []string{"m", "other"}},
	}, Ranking{}, NewLedger())
	require.Equal(t, "self self", ids(x.All()), "this machine's engine is no other node's")
	require.Equal(t, "self self", ids(x.Owners([]byte("m"))))
	require.Equal(t, "127.0.0.1:2", x.Owners([]byte("only")).At(0).Addrs[0])
	require.Equal(t, "again", ids(x.Owners([]byte("other"))), "what only one of the names holds stays")
}

func TestManyMayDecideWhileTheIndexChanges(t *testing.T) {
	l := NewLedger()
	var x atomic.Pointer[Index]
	x.Store(NewIndex(nodes("a:m", "b:m", "c:m"), listed(1, "a", "b", "c"), l))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				c, r, current := l.Reserve(x.Load().Owners([]byte("m")))
				for !current {
					c, r, current = l.Reserve(x.Load().Owners([]byte("m")))
				}
				r.Move(c.At(c.Len() - 1))
				r.Release()
			}
		})
	}
	wg.Go(func() {
		for g := range 200 {
			ranking := listed(uint64(g+2), "c", "b", "a")
			next := NewIndex(nodes("a:m", "b:m", "c:m", "d:m"), ranking, l)
			l.Reset(ranking.Generation, func() { x.Store(next) })
		}
	})
	wg.Wait()
	for _, id := range []string{"a", "b", "c", "d"} {
		require.Zero(t, l.Reserved(id), id)
	}
}

func BenchmarkDecision(b *testing.B) {
	l := NewLedger()
	var list []Node
	var ranking Ranking
	ranking.Generation, ranking.Load = 1, make(map[string]int32)
	var models []string
	for i := range 50 {
		models = append(models, fmt.Sprintf("model-%02d:latest", i))
	}
	for i := range 512 {
		n := Node{ID: fmt.Sprintf("node-%03d", i), Models: models}
		list = append(list, n)
		ranking.Nodes = append(ranking.Nodes, n.ID)
		ranking.Load[n.ID] = int32(i % 7)
	}
	x := NewIndex(list, ranking, l)
	key := []byte("model-25:latest")
	b.Run("one at a time", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c, r, _ := l.Reserve(x.Owners(key))
			r.Move(c.At(0))
			r.Release()
		}
	})
	b.Run("many at once", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				c, r, _ := l.Reserve(x.Owners(key))
				r.Move(c.At(0))
				r.Release()
			}
		})
	})
	b.Run("new index", func(b *testing.B) {
		for b.Loop() {
			NewIndex(list, ranking, l)
		}
	})
}
