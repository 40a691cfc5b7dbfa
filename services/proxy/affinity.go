// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net/http"
	"sync"

	"nvpair/services/proxy/dialect"
	"nvpair/services/proxy/route"
)

// maxResponses is how many responses are remembered, the newest.
const maxResponses = 10_000

// affinity remembers which node made which response of /v1/responses: one that
// continues it finds its state there and nowhere else (DEC-142). It lives in
// memory only; a response that is not known is routed as any other. The zero value
// is ready.
type affinity struct {
	mu     sync.Mutex // guards the rest
	made   map[string]place
	ring   []string // ids in made, the oldest at oldest once it is full
	oldest int
}

// place is one engine on one node.
type place struct{ node, addr string }

// naming looks for the id of a response in the beginning of its answer, which may
// come in any pieces. The zero value has nothing to look for.
type naming struct {
	affinity *affinity
	at       place
	begin    []byte
}

// maxNaming is where an answer's id must have been told.
const maxNaming = 4 << 10

// watch returns the naming for an answer of that node.
func (a *affinity) watch(x *exchange, at place) naming {
	if x.r.URL.Path != dialect.PathResponses || x.status != http.StatusOK {
		return naming{}
	}
	return naming{affinity: a, at: at}
}

// write looks at the next bytes of the answer.
func (n *naming) write(b []byte) {
	if n.affinity == nil {
		return
	}
	n.begin = append(n.begin, b[:min(len(b), maxNaming-len(n.begin))]...)
	if id := dialect.ResponseID(n.begin); id != "" {
		n.affinity.note(id, n.at)
	} else if len(n.begin) < maxNaming {
		return
	}
	*n = naming{}
}

// note remembers who made a response.
func (a *affinity) note(id string, at place) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.made == nil {
		a.made = make(map[string]place)
	}
	if _, known := a.made[id]; !known {
		if len(a.ring) < maxResponses {
			a.ring = append(a.ring, id)
		} else {
			delete(a.made, a.ring[a.oldest])
			a.ring[a.oldest] = id
			a.oldest = (a.oldest + 1) % maxResponses
		}
	}
	a.made[id] = at
}

// of returns where the response was made that a request continues, if that is
// known.
func (a *affinity) of(x *exchange, body []byte) (place, bool) {
	if x.r.URL.Path != dialect.PathResponses {
		return place{}, false
	}
	id := dialect.Previous(body)
	if id == "" {
		return place{}, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	at, known := a.made[id]
	return at, known
}

// prefer puts that engine first, or its node if it listens elsewhere by now.
func (p place) prefer(c route.Candidates) (route.Candidates, bool) {
	if preferred, ok := c.PreferTarget(p.addr); ok {
		return preferred, true
	}
	return c.Prefer(p.node)
}
