// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/shared/schedule"
)

func listed(t *testing.T, now time.Time, ids ...string) *view {
	t.Helper()
	v := newView()
	_, err := v.setNodes(ids, now)
	require.NoError(t, err)
	return &v
}

// TestOnlyAChangeOfTheCreditedNodeIsOne: see JS-17 to JS-22.
func TestOnlyAChangeOfTheCreditedNodeIsOne(t *testing.T) {
	now := time.Now()
	v := listed(t, now, "a", "b")
	base := job{id: "1", engine: "ollama", runID: "r", origin: "a"}
	of := func(j job, state, node string) job {
		j.state, j.node = state, node
		return j
	}
	other := base
	other.engine = "lmstudio"
	restarted := base
	restarted.runID = "r2"
	foreign := base
	foreign.origin = "b"
	for i, tt := range []struct {
		job     job
		changed bool
		want    string
	}{
		{of(base, "queued", ""), false, "a 0/1, b 0/1"},
		{of(base, "queued", "a"), true, "b 0/1, a 1/1"},
		{of(base, "running", "a"), false, "b 0/1, a 1/1"},
		{of(base, "running", "a"), false, "b 0/1, a 1/1"},
		{of(base, "running", "b"), true, "a 0/1, b 1/1"},
		{of(other, "queued", "b"), true, "a 0/1, b 2/1"},
		{of(restarted, "running", "b"), true, "a 0/1, b 3/1"},
		{of(foreign, "running", "b"), true, "a 0/1, b 4/1"},
		{of(foreign, "running", ""), true, "a 0/1, b 3/1"},
		{of(foreign, "running", "unlisted"), false, "a 0/1, b 3/1"},
		{of(foreign, "queued", "other"), false, "a 0/1, b 3/1"},
		{of(foreign, "queued", "a"), true, "a 1/1, b 3/1"},
		{of(foreign, "queued", "unlisted"), true, "a 0/1, b 3/1"},
		{of(base, "Running", "b"), true, "a 0/1, b 2/1"},
		{of(base, "cancelled", "b"), false, "a 0/1, b 2/1"},
		{of(other, "completed", ""), true, "a 0/1, b 1/1"},
		{of(restarted, "some future state", "b"), true, "a 0/1, b 0/1"},
	} {
		changed, err := v.upsert(tt.job)
		require.NoError(t, err)
		require.Equal(t, tt.changed, changed, "step %d", i)
		require.Equal(t, tt.want, items(v.rank(now)), "step %d", i)
	}
	changed, err := v.setNodes([]string{"unlisted", "b", "a"}, now)
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, "a 0/1, b 0/1, unlisted 1/1", items(v.rank(now)))
}

func TestRemovalDropsTheJobsOfAllEnginesAndRuns(t *testing.T) {
	now := time.Now()
	v := listed(t, now, "a", "b")
	for _, j := range []job{
		{id: "1", engine: "ollama", runID: "r", origin: "a", state: "queued", node: "a"},
		{id: "1", engine: "ollama", runID: "r2", origin: "a", state: "queued", node: "unlisted"},
		{id: "1", engine: "lmstudio", runID: "r", origin: "a", state: "running", node: "a"},
		{id: "1", engine: "ollama", runID: "r", origin: "b", state: "running", node: "b"},
		{id: "2", engine: "ollama", runID: "r", origin: "a", state: "running", node: "unlisted"},
	} {
		_, err := v.upsert(j)
		require.NoError(t, err)
	}
	require.False(t, v.remove(jobRef{"a", "9"}))
	require.False(t, v.remove(jobRef{"a", "2"}), "it showed nowhere")
	require.True(t, v.remove(jobRef{"a", "1"}))
	require.False(t, v.remove(jobRef{"a", "1"}))
	require.Equal(t, "a 0/1, b 1/1", items(v.rank(now)))
	require.Equal(t, 1, v.count)
	require.Len(t, v.nodes, 2)
}

func TestSameNodesInAnyOrderAreNoChange(t *testing.T) {
	now := time.Now()
	v := listed(t, now, "a", "b")
	for _, tt := range []struct {
		ids     []string
		changed bool
	}{
		{[]string{"b", "a"}, false},
		{[]string{"b", "a", "b"}, false},
		{[]string{"b"}, true},
		{[]string{"b"}, false},
		{[]string{"c"}, true},
		{nil, true},
		{[]string{}, false},
		{[]string{"a", "b"}, true},
	} {
		changed, err := v.setNodes(tt.ids, now)
		require.NoError(t, err)
		require.Equal(t, tt.changed, changed, tt)
	}
}

// TestOnlyAChangeOfThePressureIsOne: see JS-29 to JS-31.
func TestOnlyAChangeOfThePressureIsOne(t *testing.T) {
	begin := time.Now()
	v := listed(t, begin, "a")
	for i, tt := range []struct {
		at       time.Duration
		s        sample
		changed  bool
		pressure int
	}{
		{0, sample{percent: 0, valid: true, age: maxSampleAge + 1}, false, 1}, // stale as the first
		{0, sample{percent: 50, valid: true}, false, 1},
		{0, sample{percent: 0}, false, 1},
		{0, sample{percent: 0, valid: true}, true, 0},
		{0, sample{percent: 20, valid: true}, false, 0},
		{0, sample{percent: 0}, true, 1},
		{0, sample{percent: 100, valid: true}, true, 3},
		{0, sample{percent: 90, valid: true}, false, 3},
		{maxSampleAge, sample{percent: 90, valid: true}, false, 3},
		{2*maxSampleAge + 1, sample{percent: 50, valid: true}, true, 1}, // stale unnoticed, ranked as 3
		{4 * maxSampleAge, sample{percent: 50}, false, 1},
	} {
		tt.s.node = "a"
		changed, err := v.take(tt.s, begin.Add(tt.at))
		require.NoError(t, err)
		require.Equal(t, tt.changed, changed, "sample %d", i)
		require.Equal(t, tt.pressure, v.nodes["a"].pressure, "sample %d", i)
	}
}

// TestOrderIsByLoadThenPressureThenID: see JS-34 and JS-35.
func TestOrderIsByLoadThenPressureThenID(t *testing.T) {
	now := time.Now()
	v := listed(t, now, "d", "c", "a", "b", "É", "Z")
	require.Equal(t, "Z 0/1, a 0/1, b 0/1, c 0/1, d 0/1, É 0/1", items(v.rank(now)))

	v = listed(t, now, "a", "b", "c", "d")
	for node, percent := range map[string]float64{"a": 100, "b": 0, "c": 50, "d": 75} {
		_, err := v.take(sample{node: node, percent: percent, valid: true}, now)
		require.NoError(t, err)
	}
	_, err := v.upsert(job{id: "1", engine: "e", origin: "o", state: "queued", node: "b"})
	require.NoError(t, err)
	require.Equal(t, "b 1/0, c 0/1, d 0/2, a 0/3", items(v.rank(now)))
}

func TestJobsSentToTheFirstNodeKeepDepthsWithinOne(t *testing.T) {
	now := time.Now()
	r := rand.New(rand.NewPCG(3, 5))
	for range 30 {
		var ids []string
		for i := range 1 + r.IntN(40) {
			ids = append(ids, fmt.Sprintf("n%02d", i))
		}
		v := listed(t, now, ids...)
		if percent := r.IntN(200); percent <= 100 { // all the same, or unknown
			for _, id := range ids {
				_, err := v.take(sample{node: id, percent: float64(percent), valid: true}, now)
				require.NoError(t, err)
			}
		}
		for i := range 1 + r.IntN(400) {
			j := job{id: fmt.Sprint(i), runID: "r", origin: ids[r.IntN(len(ids))], state: "queued", node: v.rank(now)[0].ID}
			j.engine = []string{"ollama", "lmstudio", "another"}[r.IntN(3)]
			changed, err := v.upsert(j)
			require.NoError(t, err)
			require.True(t, changed)
			ranks := v.rank(now)
			require.LessOrEqual(t, ranks[len(ranks)-1].Pending-ranks[0].Pending, 1)
		}
	}
}

// TestViewAgreesWithARecount applies random inputs and compares with what follows
// from their plain list: the ranking, and that no change goes unreported.
func TestViewAgreesWithARecount(t *testing.T) {
	v := newView()
	p := plain{r: rand.New(rand.NewPCG(1, 2)), now: time.Now(), jobs: map[plainKey]string{},
		universe: map[string]bool{}, gauges: map[string]*gauge{}}
	last := p.rank()
	for step := range 3_000 {
		var changed bool
		var err error
		switch op := p.r.IntN(100); {
		case op < 60:
			changed, err = v.upsert(p.upsert())
		case op < 70:
			changed = v.remove(p.remove())
		case op < 95:
			changed, err = v.take(p.sample(), p.now)
		case op < 98:
			changed, err = v.setNodes(p.list(), p.now)
		default:
			p.now = p.now.Add(time.Duration(p.r.IntN(4)) * time.Second)
			changed = v.expire(p.now)
		}
		require.NoError(t, err)
		want := p.rank()
		require.True(t, changed || slices.Equal(want, last), "step %d", step)
		last = want
		require.Equal(t, want, v.rank(p.now), "step %d", step)
		requireConsistent(t, &v)
	}
}

// plain makes random inputs and keeps what they say as it is.
type plain struct {
	r        *rand.Rand
	now      time.Time
	jobs     map[plainKey]string // node
	universe map[string]bool
	gauges   map[string]*gauge
}

type plainKey struct{ origin, engine, runID, id string }

func (p *plain) pick(prefix string, n int) string { return fmt.Sprint(prefix, p.r.IntN(n)) }

func (p *plain) upsert() job {
	j := job{id: p.pick("", 20), engine: p.pick("e", 2), runID: p.pick("r", 2), origin: p.pick("n", 4), node: p.pick("n", 12)}
	j.state = []string{"queued", "running", "completed", "odd"}[p.r.IntN(4)]
	if p.r.IntN(10) == 0 {
		j.node = ""
	}
	k := plainKey{j.origin, j.engine, j.runID, j.id}
	delete(p.jobs, k)
	if j.node != "" && (j.state == "queued" || j.state == "running") {
		p.jobs[k] = j.node
	}
	return j
}

func (p *plain) remove() jobRef {
	ref := jobRef{p.pick("n", 4), p.pick("", 20)}
	maps.DeleteFunc(p.jobs, func(k plainKey, _ string) bool { return k.origin == ref.origin && k.id == ref.id })
	return ref
}

func (p *plain) sample() sample {
	s := sample{node: p.pick("n", 12), percent: float64(p.r.IntN(101)), valid: p.r.IntN(8) > 0}
	s.age = ageOf(float64(p.r.IntN(11_000)))
	if p.gauges[s.node] == nil {
		p.gauges[s.node] = &gauge{}
	}
	p.gauges[s.node].take(s, p.now)
	return s
}

func (p *plain) list() []string {
	p.universe = map[string]bool{}
	for i := range 12 {
		if p.r.IntN(3) > 0 {
			p.universe[fmt.Sprint("n", i)] = true
		}
	}
	maps.DeleteFunc(p.gauges, func(id string, _ *gauge) bool { return !p.universe[id] })
	return slices.Collect(maps.Keys(p.universe))
}

func (p *plain) rank() []schedule.NodeRank {
	ranks := []schedule.NodeRank{}
	for id := range p.universe {
		n := schedule.NodeRank{ID: id, GPUPressure: 1}
		for _, on := range p.jobs {
			if on == id {
				n.Pending++
			}
		}
		if g := p.gauges[id]; g != nil {
			n.GPUPressure = g.pressure(p.now)
		}
		ranks = append(ranks, n)
	}
	slices.SortFunc(ranks, func(a, b schedule.NodeRank) int {
		return cmp.Or(a.Pending+a.GPUPressure-b.Pending-b.GPUPressure, a.GPUPressure-b.GPUPressure, cmp.Compare(a.ID, b.ID))
	})
	for i := range ranks {
		ranks[i].Rank = i
	}
	return ranks
}

// requireConsistent requires that nothing is known that nobody named.
func requireConsistent(t *testing.T, v *view) {
	t.Helper()
	jobs, early, onList := 0, 0, 0
	pending := map[*node]int{}
	for _, same := range v.jobs {
		jobs += len(same)
		for _, p := range same {
			pending[p.on]++
		}
	}
	for id, n := range v.nodes {
		switch {
		case id != n.id, n.pending != pending[n], !n.listed && n.pending == 0 && !n.gauge.used():
			t.Fatalf("node %+v, %d pending", *n, pending[n])
		case n.listed:
			onList++
		case n.gauge.used():
			early++
		}
	}
	require.Equal(t, jobs, v.count)
	require.Equal(t, early, v.early)
	require.Len(t, v.listed, onList)
}

func TestBoundsOfAView(t *testing.T) {
	now := time.Now()
	var ids []string
	for i := range schedule.MaxNodes + 10 {
		ids = append(ids, fmt.Sprintf("n%04d", i))
	}
	v := newView()
	for i, id := range ids {
		_, err := v.take(sample{node: id, percent: 0, valid: true}, now)
		require.Equal(t, i >= maxEarly, err != nil)
	}
	_, err := v.take(sample{node: ids[0], percent: 0, valid: true}, now)
	require.NoError(t, err, "it has its place already")
	require.Len(t, v.nodes, maxEarly)

	for range 3 { // whatever the order
		rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		_, err := v.setNodes(slices.Clone(ids), now)
		require.ErrorIs(t, err, errTooManyNodes)
		ranks := v.rank(now)
		require.Len(t, ranks, schedule.MaxNodes)
		require.Equal(t, "n0000", ranks[0].ID)
		require.Equal(t, fmt.Sprintf("n%04d", schedule.MaxNodes-1), ranks[schedule.MaxNodes-1].ID)
	}

	place := func(i int, state string) error {
		_, err := v.upsert(job{id: fmt.Sprint(i), engine: "e", origin: "o", state: state, node: fmt.Sprint("on", i)})
		return err
	}
	for i := range maxJobs {
		require.NoError(t, place(i, "queued"))
	}
	require.ErrorIs(t, place(maxJobs, "queued"), errTooManyJobs)
	require.NoError(t, place(maxJobs, "failed"))
	require.NoError(t, place(0, "running"), "it is known")
	require.Len(t, v.nodes, schedule.MaxNodes+maxJobs)
	require.NoError(t, place(0, "completed"))
	require.NoError(t, place(maxJobs, "running"), "there is a place again")
	requireConsistent(t, &v)
	for i := range maxJobs + 1 {
		require.NoError(t, place(i, "completed"))
	}
	_, err = v.setNodes(nil, now)
	require.NoError(t, err)
	require.Empty(t, v.nodes)
	require.Empty(t, v.jobs)
}
