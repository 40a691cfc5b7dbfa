// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tidwall/gjson"

	"nvpair/internal/jsoncheck"
	"nvpair/internal/upstream"
	"nvpair/services/proxy/dialect"
	"nvpair/services/proxy/route"
)

const (
	listTimeout = 10 * time.Second // for one node (PX-86)

	// maxMerged bounds what all nodes together may send for one list. An answer
	// that no longer fits counts as one that is too long.
	maxMerged = 64 << 20
	// maxRows bounds one node's list; what is known of a row costs more than the row.
	maxRows = 16_384
)

// survey is the question for a model list, put to all nodes at once. What they
// answer is held in the memory of request bodies, within its bound (DEC-145).
type survey struct {
	x       *exchange
	class   dialect.Class
	page    pageRequest
	answers []listAnswer // in the order of the candidates
	left    atomic.Int64 // bytes that may still come from all nodes together
	short   atomic.Bool  // memory was refused: the list would lack a node that has answered
}

// listAnswer is one node's answer.
type listAnswer struct {
	node    string
	kind    answerKind
	resp    *upstream.Response // closed; nil without one
	held    *body              // records point into it
	records []string           // raw JSON, if valid
}

// answerKind is what an answer is good for (PX-87).
type answerKind int

const (
	unavailable answerKind = iota // no answer, or a 5xx: has no vote
	denied                        // keeps the page out
	invalid                       // no list, or one with a record without identity
	valid
)

// survey asks all candidates. What it returns must be freed.
func (x *exchange) survey(class dialect.Class, q pageRequest, c route.Candidates) *survey {
	nodes := x.f.living(c)
	s := &survey{x: x, class: class, page: q, answers: make([]listAnswer, len(nodes))}
	s.left.Store(maxMerged)
	header := x.listHeader(c.Len() == 1)
	var wg sync.WaitGroup
	for i := range s.answers {
		wg.Go(func() { s.answers[i] = s.fetch(nodes[i], header) })
	}
	wg.Wait()
	return s
}

// free gives the answers' memory back: nobody may read them afterwards.
func (s *survey) free() {
	for _, a := range s.answers {
		a.held.free()
	}
}

// everyNode returns all nodes, the selected one first.
func (x *exchange) everyNode() route.Candidates {
	c := x.f.index.Load().All()
	if pin := x.f.pinned.Load(); pin != nil {
		c, _ = c.Prefer(*pin)
	}
	return c
}

// ask puts the client's question to one of several nodes, without a body. Many
// may be asked at once.
func (x *exchange) ask(ctx context.Context, node *route.Node, header http.Header) (*upstream.Response, error) {
	targets := &x.f.p.targets
	addr := targets.address(node)
	resp, err := targets.pool(node).Do(ctx, &upstream.Request{
		Addr: addr, Host: addr, Method: x.r.Method, Target: x.r.URL.RequestURI(), Header: header,
	})
	if err != nil && x.r.Context().Err() == nil {
		targets.failed(node, addr)
	}
	return resp, err
}

// sendToOnly sends a question for all nodes to the only one there is. Events tell
// it as every such question (PX-29). The caller closes the attempt.
func (x *exchange) sendToOnly(node *route.Node) *attempt {
	a := x.dispatch(node, x.request())
	x.nodeID, x.target = "", "cluster"
	return a
}

// listHeader is the client's header for a question whose answer is read here: it
// must be whole, and what proves who the client is goes to an only node at most.
func (x *exchange) listHeader(only bool) http.Header {
	h := x.request().Header
	for name := range h {
		if name == "Accept-Encoding" || name == "Range" || strings.HasPrefix(name, "If-") ||
			!only && (name == "Authorization" || name == "Cookie") {
			delete(h, name)
		}
	}
	if h["Accept"] == nil {
		h.Set("Accept", "application/json")
	}
	return h
}

// fetch asks one node.
func (s *survey) fetch(node *route.Node, header http.Header) listAnswer {
	a := listAnswer{node: node.ID}
	ctx, cancel := context.WithTimeout(s.x.r.Context(), listTimeout)
	defer cancel()
	resp, err := s.x.ask(ctx, node, header)
	if err != nil {
		return a
	}
	defer func() { _ = resp.Close() }()
	a.resp = resp
	if a.kind = s.judge(resp); a.kind != valid {
		return a
	}
	a.held, err = s.read(resp)
	switch {
	case errors.Is(err, errMemory):
		s.short.Store(true)
	case errors.Is(err, errLarge):
		a.kind = invalid
	case err != nil:
		a.kind = unavailable
	default:
		if a.records = s.records(a.held.bytes); a.records == nil {
			a.kind = invalid
		}
	}
	return a
}

// judge tells of what kind an answer is by its head; a valid one has yet to be
// read.
func (s *survey) judge(resp *upstream.Response) answerKind {
	status := resp.StatusCode
	permitted, _ := s.page.permitsOrigin(resp.Header)
	switch refused := status == http.StatusUnauthorized || status == http.StatusForbidden; {
	case status >= 500:
		return unavailable
	case s.page.origin != "" && (refused || status == http.StatusOK && !permitted):
		return denied
	case status != http.StatusOK:
		return invalid
	}
	return valid
}

// read takes an answer into memory. errLarge means that it is too long, for
// itself or beside the others.
func (s *survey) read(resp *upstream.Response) (*body, error) {
	in := &share{r: io.LimitReader(resp.Body, maxListBytes+1), left: &s.left}
	size := min(resp.ContentLength, smallBody) // no more on a mere promise
	held, err := s.x.f.p.bodies.read(&http.Request{Body: io.NopCloser(in), ContentLength: size})
	if err == nil && len(held.bytes) > maxListBytes {
		err = errLarge
	}
	return held, err
}

// share reads on account of a common bound.
type share struct {
	r    io.Reader
	left *atomic.Int64
}

func (s *share) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if s.left.Add(-int64(n)) < 0 {
		return n, errLarge
	}
	return n, err
}

// records returns the records of a list, nil unless it is valid. They point into
// raw.
func (s *survey) records(raw []byte) []string {
	if !jsoncheck.Valid(raw) {
		return nil
	}
	// gjson would copy it; nobody writes to it while the records are in use.
	top := gjson.Parse(unsafe.String(unsafe.SliceData(raw), len(raw)))
	member, _ := listForm(s.class)
	list := top.Get(member)
	null := s.class == dialect.ListModels && list.Raw == "null" && top.Get("object").Str == "list" // DEC-50
	records := []string{}
	switch {
	case top.IsObject() && null:
		return records
	case !top.IsObject() || !list.IsArray():
		return nil
	}
	list.ForEach(func(_, r gjson.Result) bool {
		if s.identity(r) == "" || len(records) == maxRows {
			records = nil
			return false
		}
		records = append(records, r.Raw)
		return true
	})
	return records
}

// identity is what makes two records the same model, "" for none.
func (s *survey) identity(record gjson.Result) string {
	if !record.IsObject() {
		return ""
	}
	if s.class == dialect.ListModels {
		return record.Get("id").Str
	}
	return dialect.Key(s.x.f.engine.ID, cmp.Or(record.Get("model").Str, record.Get("name").Str))
}
