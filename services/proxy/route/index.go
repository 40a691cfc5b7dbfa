// SPDX-License-Identifier: Apache-2.0

// Package route decides which nodes may serve a request and in what order. An
// [Index] is built anew whenever nodes, models or the scheduler's ranking
// change, and is immutable; a decision reads it without a lock and without an
// allocation. What changes with every request, the reservations, is in a [Ledger].
package route

import (
	"cmp"
	"slices"
)

// Node is one node as a facade may use it.
type Node struct {
	ID     string   // stable host uuid, or the id a manual node was added under
	Own    bool     // this machine's own engine
	Addrs  []string // host:port in order of preference; of the engine when Own
	Models []string // keys of the models it holds; none = owns nothing
	Trust  bool     // tell clients its id (DEC-45)

	slot int32 // in the Ledger
	load int32 // pending + pressure, as the scheduler ranked it
}

// Ranking is the scheduler's word on all nodes, listed first to last.
type Ranking struct {
	Generation uint64
	Nodes      []string
	Load       map[string]int32 // pending + pressure; absent is 0
}

// Index is one facade's routing table.
type Index struct {
	nodes      []Node             // in routing order: the scheduler's list, then the rest by id
	listed     int                // so many of nodes are on the list
	owners     map[string][]int32 // positions in nodes by model key, ascending
	all        []int32            // every position
	generation uint64
}

// NewIndex builds the table. The nodes' order does not matter; of two with one id
// the first counts.
func NewIndex(nodes []Node, ranking Ranking, ledger *Ledger) *Index {
	position := make(map[string]int, len(ranking.Nodes))
	for i, id := range ranking.Nodes {
		if _, twice := position[id]; !twice {
			position[id] = i
		}
	}
	place := func(n Node) int {
		if p, ok := position[n.ID]; ok {
			return p
		}
		return len(ranking.Nodes)
	}
	x := &Index{owners: make(map[string][]int32), generation: ranking.Generation}
	seen := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		if seen[n.ID] {
			continue
		}
		seen[n.ID] = true
		n.slot, n.load = ledger.slot(n.ID), ranking.Load[n.ID]
		x.nodes = append(x.nodes, n)
	}
	slices.SortFunc(x.nodes, func(a, b Node) int { return cmp.Or(place(a)-place(b), cmp.Compare(a.ID, b.ID)) })
	for i, n := range x.nodes {
		if place(n) < len(ranking.Nodes) {
			x.listed = i + 1
		}
		x.all = append(x.all, int32(i))
		for _, key := range n.Models {
			if list := x.owners[key]; len(list) == 0 || list[len(list)-1] != int32(i) {
				x.owners[key] = append(list, int32(i))
			}
		}
	}
	return x
}

// Candidates is the order in which nodes are tried: the first, then the others
// in routing order. It is a value without memory of its own.
type Candidates struct {
	index *Index
	list  []int32
	first int32 // position in index.nodes
}

// Owners returns the nodes that hold the model with that key.
func (x *Index) Owners(key []byte) Candidates {
	return x.candidates(x.owners[string(key)]) // the compiler makes no string of it
}

// All returns every node.
func (x *Index) All() Candidates { return x.candidates(x.all) }

func (x *Index) candidates(list []int32) Candidates {
	c := Candidates{index: x, list: list, first: -1}
	if len(list) > 0 {
		c.first = list[0]
	}
	return c
}

// Len is how many nodes there are.
func (c Candidates) Len() int { return len(c.list) }

// Prefer returns the same candidates with that node first, and whether it is one
// of them.
func (c Candidates) Prefer(id string) (Candidates, bool) {
	for _, i := range c.list {
		if c.index.nodes[i].ID == id {
			c.first = i
			return c, true
		}
	}
	return c, false
}

// PreferOwn returns the same candidates with this machine's own engine first.
func (c Candidates) PreferOwn() Candidates {
	for _, i := range c.list {
		if c.index.nodes[i].Own {
			c.first = i
		}
	}
	return c
}

// At returns the n-th node to try, n from 0.
func (c Candidates) At(n int) *Node {
	if n == 0 {
		return &c.index.nodes[c.first]
	}
	for _, i := range c.list {
		if i == c.first {
			continue
		}
		if n--; n == 0 {
			return &c.index.nodes[i]
		}
	}
	panic("route: candidate out of range")
}
