// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"io"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"nvpair/internal/upstream"
	"nvpair/services/proxy/route"
)

const (
	preflightTimeout = 10 * time.Second // for all engines together (PX-94)
	voteTimeout      = 3 * time.Second  // for each of them: a dead one must not use up the others' time
	preflightsAtOnce = 8
)

// isPreflight reports whether a browser asks whether a page may send a request.
func isPreflight(r *http.Request) bool {
	_, preflight := asked(r)
	return preflight
}

// preflight answers with what all engines permit: nobody knows yet which of them
// will get the request (PX-93, PX-94).
func (x *exchange) preflight() {
	x.target = "cluster"
	c := x.everyNode()
	switch c.Len() {
	case 0:
		x.refusePlain(http.StatusBadGateway, "no active node selected or available")
		return
	case 1:
		x.onlyPreflight(c.At(0))
		return
	}
	voters, denied := x.ballot(c)
	q, _ := asked(x.r)
	permission, ok := q.combine(voters)
	switch {
	case denied:
		x.refusePlain(http.StatusForbidden, "an engine denied the request")
	case len(voters) == 0:
		x.refusePlain(http.StatusBadGateway, "no engine answered the preflight request")
	case !ok:
		x.refusePlain(http.StatusForbidden, "engines do not all permit the request")
	case x.r.Context().Err() == nil:
		maps.Copy(x.w.Header(), permission)
		x.status = http.StatusNoContent
		x.w.WriteHeader(x.status)
	}
}

// onlyPreflight passes on the answer of the only node there is.
func (x *exchange) onlyPreflight(node *route.Node) {
	a := x.sendToOnly(node)
	defer a.close()
	if a.err != nil {
		x.refusePlain(http.StatusBadGateway, "upstream error: "+errText(a.err).Error())
		return
	}
	x.pass(a)
}

// ballot asks every node. It returns the heads of those that answered with a
// vote, and whether one denied the request outright.
func (x *exchange) ballot(c route.Candidates) (voters []http.Header, denied bool) {
	ctx, cancel := context.WithTimeout(x.r.Context(), preflightTimeout)
	defer cancel()
	header := x.request().Header
	header.Del("Authorization")
	header.Del("Cookie")
	nodes := x.f.living(c)
	heads := make([]*upstream.Response, len(nodes)) // closed; nil without an answer
	var next atomic.Int32
	var wg sync.WaitGroup
	for range min(preflightsAtOnce, len(nodes)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(nodes) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				heads[i] = x.head(ctx, nodes[i], header)
			}
		})
	}
	wg.Wait()
	for _, resp := range heads {
		switch {
		case resp == nil || resp.StatusCode >= 500:
		case resp.StatusCode >= 300:
			denied = true
		default:
			voters = append(voters, resp.Header)
		}
	}
	return voters, denied
}

// head asks one node for its vote, nil if it does not come in time.
func (x *exchange) head(ctx context.Context, node *route.Node, header http.Header) *upstream.Response {
	ctx, cancel := context.WithTimeout(ctx, voteTimeout)
	defer cancel()
	resp, err := x.ask(ctx, node, header)
	if err != nil {
		return nil
	}
	_ = resp.Close()
	return resp
}

// refusePlain answers a preflight with an error of our own, in plain text.
// Nothing is written to a client that has left (PX-97).
func (x *exchange) refusePlain(status int, message string) {
	if x.r.Context().Err() != nil {
		return
	}
	h := x.w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	x.status, x.failure = status, message
	x.w.WriteHeader(status)
	_, _ = io.WriteString(x.w, message) // a client that left needs no answer
}
