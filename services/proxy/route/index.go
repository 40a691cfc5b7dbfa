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
	Addrs  []string // host:port in order of preference; of the engine when Own. The first one tells targets apart
	Models []string // keys of the models it holds; none = owns nothing
	Trust  bool     // tell clients its id (DEC-45)

	slot   int32 // in the Ledger
	load   int32 // pending + pressure, as the scheduler ranked it
	shared bool  // another node has the same target
}

// target tells what is dialled.
func (n *Node) target() string {
	if len(n.Addrs) == 0 {
		return n.ID
	}
	return n.Addrs[0]
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

// NewIndex builds the table. The nodes' order does not matter. One id may stand
// for several targets, as this machine does with several engines; of two nodes
// with one target the own one counts, else the first in routing order (PX-50).
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
	x := &Index{nodes: slices.Clone(nodes), owners: make(map[string][]int32), generation: ranking.Generation}
	targets := make(map[string]int, len(nodes)) // how many nodes have it
	for i := range x.nodes {
		n := &x.nodes[i]
		n.slot, n.load = ledger.slot(n.ID), ranking.Load[n.ID]
		targets[n.target()]++
	}
	slices.SortStableFunc(x.nodes, func(a, b Node) int { return cmp.Or(place(a)-place(b), cmp.Compare(a.ID, b.ID)) })
	for i := range x.nodes {
		n := &x.nodes[i]
		n.shared = targets[n.target()] > 1
		if place(*n) < len(ranking.Nodes) {
			x.listed = i + 1
		}
		x.all = x.add(x.all, int32(i))
		for _, key := range n.Models {
			x.owners[key] = x.add(x.owners[key], int32(i))
		}
	}
	return x
}

// add appends a position to a list that does not have that target yet.
func (x *Index) add(list []int32, i int32) []int32 {
	if len(list) > 0 && list[len(list)-1] == i {
		return list // one model under two names
	}
	n := &x.nodes[i]
	if !n.shared {
		return append(list, i)
	}
	twin := slices.IndexFunc(list, func(j int32) bool { return x.nodes[j].target() == n.target() })
	switch {
	case twin < 0:
		return append(list, i)
	case n.Own && !x.nodes[list[twin]].Own:
		return append(slices.Delete(list, twin, twin+1), i)
	}
	return list
}

// Candidates is the order in which nodes are tried: the first, then the others
// in routing order. It is a value without memory of its own.
type Candidates struct {
	index *Index
	list  []int32
	first int32 // position in index.nodes
}

// Others calls f with every node but this machine's own engines, those that share
// another's target included.
func (x *Index) Others(f func(n *Node)) {
	for i := range x.nodes {
		if n := &x.nodes[i]; !n.Own {
			f(n)
		}
	}
}

// Dials reports whether any node is dialled at that address.
func (x *Index) Dials(addr string) bool {
	return slices.ContainsFunc(x.nodes, func(n Node) bool { return n.target() == addr })
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

// PreferTarget is Prefer for the node that is dialled at that address.
func (c Candidates) PreferTarget(addr string) (Candidates, bool) {
	for _, i := range c.list {
		if c.index.nodes[i].target() == addr {
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
			c.first = i // of several the main one, which comes first
			break
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
