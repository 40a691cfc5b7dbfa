// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"nvpair/internal/jsoncheck"
	"nvpair/internal/upstream"
	"nvpair/services/proxy/dialect"
	"nvpair/services/proxy/route"
)

// listTimeout bounds the question to one node (PX-86).
const listTimeout = 10 * time.Second

// list serves a model list: one node's answer as it is, or all nodes' merged.
func (x *exchange) list(class dialect.Class) {
	c := x.f.index.Load().All()
	if pin := x.f.pinned.Load(); pin != nil {
		c, _ = c.Prefer(*pin)
	}
	if c.Len() == 1 {
		x.firstAnswer(c, nil)
		return
	}
	x.target = "cluster"
	if x.r.Header.Get("Origin") != "" {
		// Engines decide what pages may read; their votes are not combined yet.
		x.refuse(http.StatusForbidden, "an engine denied access to the model list", "")
		return
	}
	x.merged(class, c)
}

func (x *exchange) merged(class dialect.Class, c route.Candidates) {
	lists := make([][]gjson.Result, c.Len()) // nil: no valid answer
	var wg sync.WaitGroup
	for i := range c.Len() {
		wg.Go(func() { lists[i] = x.fetchList(class, c.At(i)) })
	}
	wg.Wait()
	valid := false
	seen := make(map[string]bool)
	_, open := listForm(class)
	out := []byte(open)
	first := true
	for _, list := range lists {
		valid = valid || list != nil
		for _, record := range list {
			id := x.identity(class, record)
			if seen[id] {
				continue
			}
			seen[id] = true
			if !first {
				out = append(out, ',')
			}
			first = false
			out = append(out, record.Raw...)
		}
	}
	if !valid {
		x.refuse(http.StatusServiceUnavailable, "model inventory unavailable", "")
		return
	}
	out = append(out, ']', '}')
	x.w.Header().Set("Content-Type", "application/json")
	x.status = http.StatusOK
	_, _ = x.w.Write(out) // a client that left needs no answer
}

// listForm returns the member that holds a list, and how a list begins.
func listForm(class dialect.Class) (member, open string) {
	if class == dialect.ListTags {
		return "models", `{"models":[`
	}
	return "data", `{"object":"list","data":[`
}

// identity is what makes two records the same model.
func (x *exchange) identity(class dialect.Class, record gjson.Result) string {
	if class == dialect.ListModels {
		return record.Get("id").String()
	}
	name := record.Get("model").String()
	if name == "" {
		name = record.Get("name").String()
	}
	return dialect.Key(x.f.engine.ID, name)
}

// fetchList returns one node's records, nil unless its answer is a valid list.
func (x *exchange) fetchList(class dialect.Class, node *route.Node) []gjson.Result {
	ctx, cancel := context.WithTimeout(x.r.Context(), listTimeout)
	defer cancel()
	addr := x.f.p.targets.address(node)
	resp, err := x.f.p.targets.pool(node).Do(ctx, &upstream.Request{
		Addr: addr, Host: addr, Method: http.MethodGet, Target: x.r.URL.RequestURI(),
		Header: http.Header{"Accept": {"application/json"}},
	})
	if err != nil {
		return nil
	}
	defer func() { _ = resp.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxListBytes+1))
	if err != nil || resp.StatusCode != http.StatusOK || len(raw) > maxListBytes || !jsoncheck.Valid(raw) {
		return nil
	}
	records, err := x.records(class, raw)
	if err != nil {
		return nil
	}
	return records
}

var errNoList = errors.New("no list")

func (x *exchange) records(class dialect.Class, raw []byte) ([]gjson.Result, error) {
	member, _ := listForm(class)
	list := gjson.GetBytes(raw, member)
	emptyAsNull := class == dialect.ListModels && list.Type == gjson.Null && list.Exists() // DEC-50
	if !list.IsArray() && !emptyAsNull {
		return nil, errNoList
	}
	records := []gjson.Result{}
	for _, r := range list.Array() {
		if x.identity(class, r) == "" {
			return nil, errNoList
		}
		records = append(records, r)
	}
	return records, nil
}
