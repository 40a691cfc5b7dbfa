// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/tidwall/gjson"

	"nvpair/internal/upstream"
)

const (
	// inventoryAge is how old the own engine's inventory may be before a model
	// that it does not list is called unknown (DEC-133).
	inventoryAge = 2 * time.Second
	// inventoryTimeout bounds the question; an engine that is loading answers late.
	inventoryTimeout = 5 * time.Second
	maxListBytes     = 16 << 20 // PX-86
	maxModels        = 4096
)

// inquiry is a question for the own engine's models.
type inquiry struct {
	addr string
	at   time.Time // of its end
	told bool      // it was answered
}

// ask asks the own engine for its models, unless that happened after since. It
// reports whether there is an answer that young.
func (f *facadeServer) ask(since time.Time) bool {
	f.asking.Lock()
	defer f.asking.Unlock()
	backend := f.backend.Load()
	if backend == nil {
		return false
	}
	if f.asked.addr == *backend && f.asked.at.After(since) {
		return f.asked.told // one question, however many wait for it
	}
	ctx, cancel := context.WithTimeout(f.p.ctx, inventoryTimeout)
	defer cancel()
	models, err := f.fetchModels(ctx, *backend)
	f.asked = inquiry{addr: *backend, at: time.Now(), told: err == nil}
	if err != nil {
		f.log.Debug("own engine did not list its models", "addr", *backend, "err", err)
		return false
	}
	f.state.mu.Lock()
	defer f.state.mu.Unlock()
	if f.state.overlay.backend == *backend { // otherwise it is another engine's list by now
		f.state.overlay.inventory = f.state.keys(models)
		f.rebuildLocked()
	}
	return true
}

// fetchModels reads GET /v1/models, which every engine serves.
func (f *facadeServer) fetchModels(ctx context.Context, addr string) ([]string, error) {
	resp, err := f.p.pool.Do(ctx, &upstream.Request{
		Addr: addr, Method: http.MethodGet, Target: "/v1/models", Host: addr,
		Header: http.Header{"Accept": {"application/json"}},
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxListBytes))
	if err != nil {
		return nil, err
	}
	list := gjson.GetBytes(raw, "data")
	if resp.StatusCode != http.StatusOK || !list.IsArray() && (list.Type != gjson.Null || !list.Exists()) {
		return nil, fmt.Errorf("no model list, status %d", resp.StatusCode) // an engine that is loading says 503
	}
	models := []string{}
	gjson.GetBytes(raw, "data.#.id").ForEach(func(_, id gjson.Result) bool {
		models = append(models, id.String())
		return len(models) < maxModels
	})
	return models, nil
}
