// SPDX-License-Identifier: Apache-2.0

package route

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// loaded is a ranking of the nodes a, b, c… with these loads.
func loaded(generation uint64, loads ...int32) Ranking {
	r := Ranking{Generation: generation, Load: make(map[string]int32)}
	for i, load := range loads {
		id := string(rune('a' + i))
		r.Nodes, r.Load[id] = append(r.Nodes, id), load
	}
	return r
}

// owners returns as many nodes that hold m.
func owners(n int) []Node {
	var list []Node
	for i := range n {
		list = append(list, Node{ID: string(rune('a' + i)), Models: []string{"m"}})
	}
	return list
}

func reserve(l *Ledger, x *Index) (string, *Reservation) {
	c, r, _ := l.Reserve(x.Owners([]byte("m")))
	return c.At(0).ID, &r
}

func TestHeldRequestsSpreadEvenly(t *testing.T) { // PX-56
	for k := 1; k <= 7; k++ {
		l := NewLedger()
		x := NewIndex(owners(k), loaded(1, make([]int32, k)...), l)
		for n := range 50 {
			reserve(l, x)
			var counts []int
			for _, node := range owners(k) {
				counts = append(counts, l.Reserved(node.ID))
			}
			require.LessOrEqual(t, slices.Max(counts)-slices.Min(counts), 1, "%d held over %v", n+1, counts)
		}
	}
}

func TestHeldRequestsLevelWhatIsPending(t *testing.T) { // PX-56: 0/1/3 plus 5 ends at 3/3/3
	l := NewLedger()
	x := NewIndex(owners(3), loaded(1, 0, 1, 3), l)
	for range 5 {
		reserve(l, x)
	}
	require.Equal(t, []int{3, 2, 0}, []int{l.Reserved("a"), l.Reserved("b"), l.Reserved("c")})
}

func TestTiesGoToTheEarlierOfTheList(t *testing.T) {
	l := NewLedger()
	r := loaded(1, 1, 1, 1)
	r.Nodes = []string{"c", "a", "b"}
	x := NewIndex(owners(3), r, l)
	var order []string
	for range 6 {
		id, _ := reserve(l, x)
		order = append(order, id)
	}
	require.Equal(t, []string{"c", "a", "b", "c", "a", "b"}, order)
}

func TestTheChosenIsFirstAndTheOthersKeepTheirOrder(t *testing.T) {
	l := NewLedger()
	c, _, _ := l.Reserve(NewIndex(owners(4), loaded(1, 5, 5, 0, 5), l).All())
	require.Equal(t, "c a b d", ids(c))
}

func TestOnlyListedNodesAreReserved(t *testing.T) { // PX-55
	l := NewLedger()
	x := NewIndex(owners(3), loaded(1, 9), l) // a only, and loaded
	c, r, _ := l.Reserve(x.Owners([]byte("m")))
	require.Equal(t, "a b c", ids(c))
	require.Equal(t, 1, l.Reserved("a"))
	r.Release()

	for _, unranked := range []Ranking{{}, listed(1), listed(1, "x")} {
		x := NewIndex(owners(3), unranked, l)
		c, r, _ := l.Reserve(x.Owners([]byte("m")))
		require.Equal(t, "a b c", ids(c))
		r.Move(c.At(1))
		require.Zero(t, l.Reserved("a")+l.Reserved("b"), "nothing held, nothing moved")
		r.Release()
	}
}

func TestAReservationFollowsTheDispatch(t *testing.T) { // PX-57
	l := NewLedger()
	x := NewIndex(owners(2), loaded(1, 0, 0), l)
	c, r, _ := l.Reserve(x.All())
	r.Move(c.At(0))
	require.Equal(t, 1, l.Reserved("a"), "the same node: nothing moves")
	r.Move(c.At(1))
	require.Equal(t, []int{0, 1}, []int{l.Reserved("a"), l.Reserved("b")})
	r.Release()
	r.Release()
	require.Equal(t, []int{0, 0}, []int{l.Reserved("a"), l.Reserved("b")})
	r.Move(c.At(0))
	require.Zero(t, l.Reserved("a"), "what is released does not move")
}

func TestANodeOffTheListCanHoldAMovedReservation(t *testing.T) {
	l := NewLedger()
	c, r, _ := l.Reserve(NewIndex(owners(2), loaded(1, 0), l).All())
	r.Move(c.At(1))
	require.Equal(t, []int{0, 1}, []int{l.Reserved("a"), l.Reserved("b")})
	r.Release()
	require.Zero(t, l.Reserved("b"))
}

func TestANewerRankingForgetsWhatWasReserved(t *testing.T) { // PX-27, PX-57
	l := NewLedger()
	x := NewIndex(owners(2), loaded(1, 0, 0), l)
	require.True(t, l.Reset(1, func() {}))
	_, old := reserve(l, x)
	_, moved := reserve(l, x)
	require.True(t, l.Reset(2, func() {}))
	require.Zero(t, l.Reserved("a")+l.Reserved("b"))
	_, _, current := l.Reserve(x.All())
	require.False(t, current, "the older index is no ground to choose on")

	x = NewIndex(owners(2), loaded(2, 0, 0), l)
	id, fresh := reserve(l, x)
	require.Equal(t, "a", id)
	old.Release()
	require.Equal(t, 1, l.Reserved("a"), "a release under an older ranking changes nothing")
	moved.Move(x.All().At(0))
	require.Equal(t, 2, l.Reserved("a"), "a move takes a fresh one and gives none back")
	moved.Release()
	fresh.Release()
	require.Zero(t, l.Reserved("a")+l.Reserved("b"))
}

func TestARankingThatIsNotNewerChangesNothing(t *testing.T) { // PX-27
	l := NewLedger()
	x := NewIndex(owners(1), loaded(5, 0), l)
	require.True(t, l.Reset(5, func() {}))
	_, r := reserve(l, x)
	for _, g := range []uint64{5, 4, 0} {
		require.False(t, l.Reset(g, func() { t.Error("published") }))
	}
	require.Equal(t, 1, l.Reserved("a"))
	r.Release()
	require.Zero(t, l.Reserved("a"))
}

func TestReservationsOutliveARebuiltIndex(t *testing.T) {
	l := NewLedger()
	_, held := reserve(l, NewIndex(owners(2), loaded(1, 0, 0), l))
	id, _ := reserve(l, NewIndex(owners(3), loaded(1, 0, 0, 1), l))
	require.Equal(t, "b", id)
	held.Release()
	require.Zero(t, l.Reserved("a"))
	require.Zero(t, l.Reserved("never seen"))
}

func TestTheZeroReservationIsHarmless(t *testing.T) {
	var r Reservation
	r.Move(&Node{slot: 7})
	r.Release()
}

// Whatever the order of the calls, no count falls below zero, and once all is
// released nothing is left.
func TestCountsNeverFallBelowZero(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		l := NewLedger()
		x := NewIndex(owners(3), loaded(1, 0, 0, 0), l)
		var all []*Reservation
		generation := uint64(1)
		for range 60 {
			switch rng.IntN(5) {
			case 0, 1:
				_, r := reserve(l, x)
				all = append(all, r)
			case 2:
				if len(all) > 0 {
					all[rng.IntN(len(all))].Move(x.All().At(rng.IntN(3)))
				}
			case 3:
				if len(all) > 0 {
					all[rng.IntN(len(all))].Release()
				}
			case 4:
				generation++
				x = NewIndex(owners(3), loaded(generation, 0, 0, 0), l)
				l.Reset(generation, func() {})
			}
			for _, n := range l.counts {
				require.GreaterOrEqual(t, n, int32(0))
			}
		}
		for _, r := range all {
			r.Release()
		}
		for _, n := range l.counts {
			require.Zero(t, n)
		}
	}
}
