// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"nvpair/services/proxy/dialect"
	"nvpair/services/proxy/route"
)

// list serves a model list: merged over all nodes, or one node's as it is. What a
// page gets is subject to the engines' votes (PX-91).
func (x *exchange) list(class dialect.Class) {
	x.target = "cluster"
	c := x.everyNode()
	q, _ := asked(x.r)
	if c.Len() == 1 && q.origin == "" {
		a := x.sendToOnly(c.At(0))
		defer a.close()
		if a.err != nil {
			x.fail(a.err)
			return
		}
		x.pass(a)
		return
	}
	if c.Len() > 0 {
		x.tellStarted()
	}
	s := x.survey(class, q, c)
	defer s.free()
	switch status, refusal, permission := s.verdict(); {
	case x.r.Context().Err() != nil: // nothing is written to a client that has left
	case s.short.Load():
		x.refuseBody(errMemory)
	case status != http.StatusOK:
		maps.Copy(x.w.Header(), permission)
		x.refuse(status, refusal, "")
	case c.Len() == 1:
		x.passOn(c.At(0), &s.answers[0])
	default:
		maps.Copy(x.w.Header(), permission)
		x.writeList(class, s.merge())
	}
}

// passOn gives the client the only node's answer, which has been read.
func (x *exchange) passOn(node *route.Node, a *listAnswer) {
	all := a.held.bytes
	out := (&attempt{x: x, node: node, addr: node.Addrs[0], resp: a.resp}).serve(&copyBuffer{bytes: all}, len(all), true)
	if out.err != nil {
		x.failure = out.err.Error()
	}
	if out.abort {
		panic(http.ErrAbortHandler)
	}
}

// writeList writes records as one list (PX-89).
func (x *exchange) writeList(class dialect.Class, records []string) {
	_, open := listForm(class)
	size := len(open) + len("]}") + max(len(records)-1, 0)
	for _, r := range records {
		size += len(r)
	}
	x.w.Header().Set("Content-Type", "application/json")
	x.w.Header().Set("Content-Length", strconv.Itoa(size))
	// One deadline for all of it, which the server takes back (PX-77).
	_ = http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(x.f.p.cfg.limits.writeTimeout))
	x.status = http.StatusOK
	w := bufio.NewWriter(x.w) // keeps the first error
	_, _ = w.WriteString(open)
	for i, r := range records {
		if i > 0 {
			_ = w.WriteByte(',')
		}
		_, _ = w.WriteString(r)
	}
	_, _ = w.WriteString("]}")
	if err := w.Flush(); err != nil {
		x.failure = err.Error()
	}
}

// listForm returns the member that holds a list, and how a list begins.
func listForm(class dialect.Class) (member, open string) {
	if class == dialect.ListTags {
		return "models", `{"models":[`
	}
	return "data", `{"object":"list","data":[`
}

// merge returns the first record of each model, in the order of the nodes
// (PX-88).
func (s *survey) merge() []string {
	var merged []string
	type origin struct{ digest, node string }
	seen := make(map[string]origin)
	warned := false
	for _, a := range s.answers {
		for _, raw := range a.records {
			record := gjson.Parse(raw)
			id, digest := s.identity(record), record.Get("digest").Str
			first, known := seen[id]
			if !known {
				merged = append(merged, raw)
			}
			if first.digest == "" {
				seen[id] = origin{digest, a.node}
			}
			if differs := first.digest != "" && digest != "" && first.digest != digest; differs && !warned {
				warned = true
				s.x.f.log.Warn("nodes hold different models of one name", "id", strings.Clone(id), "node", a.node, "other", first.node)
			}
		}
	}
	return merged
}

// verdict decides what the client gets: the status, the text of a refusal, and
// the permission that comes with it (PX-90, PX-91).
func (s *survey) verdict() (status int, refusal string, permission http.Header) {
	const nothing = "model inventory unavailable"
	count := make(map[answerKind]int)
	var voters []http.Header
	for _, a := range s.answers {
		count[a.kind]++
		if a.kind != unavailable {
			voters = append(voters, a.resp.Header)
		}
	}
	if s.page.origin == "" {
		if count[valid] == 0 {
			return http.StatusServiceUnavailable, nothing, nil
		}
		return http.StatusOK, "", nil
	}
	permission, permitted := s.page.combine(voters)
	switch {
	case count[denied] > 0:
		return http.StatusForbidden, "an engine denied access to the model list", nil
	case len(voters) == 0:
		return http.StatusBadGateway, nothing, nil
	case count[invalid] > 0:
		return http.StatusBadGateway, nothing, permission
	case !permitted:
		return http.StatusForbidden, "engines do not all permit access to the model list", nil
	}
	return http.StatusOK, "", permission
}
