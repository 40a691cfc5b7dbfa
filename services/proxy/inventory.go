// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"nvpair/internal/jsoncheck"
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

// inquiry is a question for an own engine's models.
type inquiry struct {
	at     time.Time // of its end
	models []string  // nil without an answer
}

// ask asks the own engines for their models, except those asked after since. It
// reports whether there is an answer that young.
func (f *facadeServer) ask(since time.Time) bool {
	f.asking.Lock() // one question, however many wait for it
	defer f.asking.Unlock()
	backends := f.ownBackends()
	answers := make([]inquiry, len(backends))
	var wg sync.WaitGroup
	for i, addr := range backends {
		if answers[i] = f.asked[addr]; !answers[i].at.After(since) {
			wg.Go(func() { answers[i] = f.inquire(addr) })
		}
	}
	wg.Wait()
	f.asked = make(map[string]inquiry, len(backends))
	told := false
	for i, addr := range backends {
		f.asked[addr] = answers[i]
		told = told || answers[i].models != nil
	}
	f.takeInventories(f.asked)
	return told
}

// ownBackends are where this machine's own engines of the facade listen.
func (f *facadeServer) ownBackends() []string {
	f.state.mu.Lock()
	defer f.state.mu.Unlock()
	return f.state.overlay.backends // replaced, never changed
}

// takeInventories makes the answers of engines that are still there the ground of
// routing. One that gave none keeps what it told before.
func (f *facadeServer) takeInventories(answers map[string]inquiry) {
	f.state.mu.Lock()
	defer f.state.mu.Unlock()
	o := &f.state.overlay
	next := make(map[string][]string, len(o.backends))
	for _, addr := range o.backends {
		if a := answers[addr]; a.models != nil {
			next[addr] = f.state.keys(a.models)
		} else if before, told := o.inventory[addr]; told {
			next[addr] = before
		}
	}
	o.inventory = next
	f.rebuildLocked()
}

func (f *facadeServer) inquire(addr string) inquiry {
	ctx, cancel := context.WithTimeout(f.p.ctx, inventoryTimeout)
	defer cancel()
	models, err := f.fetchModels(ctx, addr)
	if err != nil {
		f.log.Debug("own engine did not list its models", "addr", addr, "err", err)
	}
	return inquiry{at: time.Now(), models: models}
}

// fetchModels reads GET /v1/models, which every engine serves.
func (f *facadeServer) fetchModels(ctx context.Context, addr string) ([]string, error) {
	resp, err := f.p.targets.plain.Do(ctx, &upstream.Request{
		Addr: addr, Method: http.MethodGet, Target: "/v1/models", Host: addr,
		Header: http.Header{"Accept": {"application/json"}},
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxListBytes+1))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || len(raw) > maxListBytes || !jsoncheck.Valid(raw) || !isList(raw) {
		return nil, fmt.Errorf("no model list, status %d", resp.StatusCode) // an engine that is loading says 503
	}
	models := []string{}
	gjson.GetBytes(raw, "data.#.id").ForEach(func(_, id gjson.Result) bool {
		models = append(models, id.String())
		return len(models) < maxModels
	})
	return models, nil
}

// isList reports whether an answer is a model list; Ollama's empty one is null
// (DEC-50).
func isList(raw []byte) bool {
	list := gjson.GetBytes(raw, "data")
	return list.IsArray() || list.Raw == "null" && gjson.GetBytes(raw, "object").Str == "list"
}
