// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"nvpair/internal/upstream"
	"nvpair/internal/worker"
	"nvpair/services/proxy/route"
)

// silentProbes in a row make a node dead (DEC-97).
const silentProbes = 3

var (
	// errNodeDead ends the requests at a node that no longer answers anything.
	errNodeDead = errors.New("the node stopped answering")
	// errNodeLeft ends the requests that wait at a node that was removed.
	errNodeLeft = errors.New("the node is no longer known")
)

// vigil tells a slow node from a dead one: while requests wait at another node,
// it is asked for any sign of life every two seconds. Slow is no fault, so there
// is no other limit to the time until an answer begins (DEC-11). The own engine
// is not asked: a closed connection is its death.
//
// A facade has one. Every watched node has one goroutine, which ends when no
// request has been there for a round, or, for a dead one, when it answers again or
// is removed.
type vigil struct {
	ctx     context.Context // ends with the worker
	serving *worker.Group   // waits for the goroutines
	log     *slog.Logger
	pools   *targets
	every   time.Duration // between the beginnings of two questions to a node, and the time for an answer
	dead    atomic.Int32  // how many nodes are, so that isDead costs nothing while none is

	mu    sync.Mutex          // guards the rest
	nodes map[string]*watched // by target
}

// watched is a node at which requests wait, or that is dead. vigil.mu guards it.
type watched struct {
	node    *route.Node
	flights map[*flight]struct{}
	heard   time.Time // of the last sign of life
	silent  int       // questions without an answer, in a row
	dead    bool
	left    bool // the node was removed
}

// flight is one request at another node. The nil flight is one at the own engine.
type flight struct {
	vigil     *vigil
	at        string
	cancel    context.CancelCauseFunc
	committed bool // guarded by vigil.mu
}

// begin watches over a request to a node: the context it returns ends when the
// node is dead, or removed before the answer began.
func (v *vigil) begin(ctx context.Context, n *route.Node) (context.Context, *flight) {
	if n.Own {
		return ctx, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	fl := &flight{vigil: v, at: n.Addrs[0], cancel: cancel}
	v.mu.Lock()
	defer v.mu.Unlock()
	w := v.nodes[fl.at]
	if w == nil {
		w = &watched{node: n, flights: make(map[*flight]struct{})}
		v.nodes[fl.at] = w
		v.serving.Go(func() { v.watch(w, fl.at) })
	}
	w.node, w.left = n, false
	w.flights[fl] = struct{}{}
	return ctx, fl
}

// answered says that the node has sent something; commit that its answer goes to
// the client.
func (fl *flight) answered(commit bool) {
	if fl == nil {
		return
	}
	fl.vigil.mu.Lock()
	defer fl.vigil.mu.Unlock()
	if w := fl.vigil.nodes[fl.at]; w != nil {
		fl.vigil.aliveLocked(w)
	}
	fl.committed = fl.committed || commit
}

// end is called once the request no longer uses the node.
func (fl *flight) end() {
	if fl == nil {
		return
	}
	fl.cancel(nil)
	fl.vigil.mu.Lock()
	defer fl.vigil.mu.Unlock()
	if w := fl.vigil.nodes[fl.at]; w != nil {
		delete(w.flights, fl)
	}
}

// isDead reports whether a node is passed over while others can serve.
func (v *vigil) isDead(n *route.Node) bool {
	if n.Own || v.dead.Load() == 0 {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	w := v.nodes[n.Addrs[0]]
	return w != nil && w.dead
}

// living returns the candidates in their order without those that are dead, or all
// of them if no other is left.
func (f *facadeServer) living(c route.Candidates) []*route.Node {
	all := make([]*route.Node, 0, c.Len())
	for i := range c.Len() {
		all = append(all, c.At(i))
	}
	if f.vigil.dead.Load() == 0 {
		return all
	}
	alive := slices.DeleteFunc(slices.Clone(all), f.vigil.isDead)
	if len(alive) == 0 {
		return all
	}
	return alive
}

// removed ends the requests that wait at a node that is no longer known.
func (v *vigil) removed(n *route.Node) {
	v.mu.Lock()
	defer v.mu.Unlock()
	w := v.nodes[n.Addrs[0]]
	if w == nil {
		return
	}
	w.left = true
	for fl := range w.flights {
		if !fl.committed {
			fl.cancel(errNodeLeft)
		}
	}
}

// watch asks a node for signs of life until nobody needs to know. The first
// question waits a little: most answers come before it, and a death is still
// noticed within eight seconds.
func (v *vigil) watch(w *watched, at string) {
	pause := v.every / 2
	for {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-v.ctx.Done():
			timer.Stop()
		}
		if !v.needed(w, at) {
			return
		}
		began := time.Now()
		v.note(w, v.ask(w))
		pause = v.pause(w) - time.Since(began)
	}
}

// needed reports whether the node is still to be watched, and forgets it if not.
func (v *vigil) needed(w *watched, at string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ctx.Err() == nil && (len(w.flights) > 0 || w.dead && !w.left) {
		return true
	}
	if w.dead {
		v.dead.Add(-1) // it no longer counts
	}
	delete(v.nodes, at)
	return false
}

// pause is the time until the next question: longer for a node that is dead.
func (v *vigil) pause(w *watched) time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	if w.dead {
		return v.every * 5 / 2
	}
	return v.every
}

// ask reports whether the node gave any sign of life lately or gives one now.
func (v *vigil) ask(w *watched) bool {
	v.mu.Lock()
	n, recent := w.node, time.Since(w.heard) < v.every
	v.mu.Unlock()
	if recent {
		return true
	}
	ctx, cancel := context.WithTimeout(v.ctx, v.every)
	defer cancel()
	addr := v.pools.address(n)
	resp, err := v.pools.pool(n).Do(ctx, &upstream.Request{Addr: addr, Host: addr, Method: http.MethodGet, Target: "/"})
	if err != nil {
		return v.ctx.Err() != nil // the worker's end says nothing about the node
	}
	_ = resp.Close()
	return true
}

// note counts the answers to the questions.
func (v *vigil) note(w *watched, alive bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if alive {
		v.aliveLocked(w)
		return
	}
	w.silent++
	if w.silent < silentProbes {
		return
	}
	if !w.dead {
		w.dead = true
		v.dead.Add(1)
		v.log.Warn("node is dead, its requests move on", "node", w.node.ID, "addr", w.node.Addrs[0])
	}
	for fl := range w.flights {
		fl.cancel(errNodeDead) // streams too: a broken answer is better than one that hangs
	}
}

// aliveLocked takes a sign of life.
func (v *vigil) aliveLocked(w *watched) {
	w.heard, w.silent = time.Now(), 0
	if w.dead {
		w.dead = false
		v.dead.Add(-1)
		v.log.Info("node answers again", "node", w.node.ID, "addr", w.node.Addrs[0])
	}
}
