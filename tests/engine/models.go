// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// defaultKeep is how long Ollama keeps a model that no request says more about.
const defaultKeep = 5 * time.Minute

// instance is one loaded or loading copy of a model.
type instance struct {
	id      string
	num     int // 1, or the n of "key:n"
	loading bool
	ready   chan struct{} // closed when the load has ended
	until   time.Time     // when it is unloaded; zero is never
	forever bool          // asked for with a negative keep_alive
	keep    time.Duration
	context int
	users   int
	used    int64         // order of last use
	cut     chan struct{} // closed when it is unloaded under its users
}

// models is what the engine has and what of it is loaded. Expiry is looked at
// when somebody looks, so that no timer runs.
type models struct {
	cfg Config

	mu      sync.Mutex // guards what follows
	list    []Model
	loaded  map[string][]*instance // by the model's name
	changed chan struct{}          // closed and replaced when an instance loses its last user or goes
	awaited bool                   // somebody waits for changed
	clock   int64
	loadEnd time.Time       // of the last load in the row
	blobs   map[string]bool // digests, without the prefix
	pulled  map[string]int  // progress lines a broken-off pull had sent
	jobs    map[string]*job // LM Studio's downloads
}

func newModels(cfg Config) *models {
	m := &models{cfg: cfg}
	m.replace(cfg.Models)
	return m
}

func (m *models) replace(list []Model) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list, m.loaded, m.changed = nil, map[string][]*instance{}, make(chan struct{})
	m.blobs, m.pulled, m.jobs = map[string]bool{}, map[string]int{}, map[string]*job{}
	for _, model := range list {
		model = model.complete()
		if m.cfg.Dialect == Ollama {
			model.Name = canonical(model.Name)
		}
		m.list = append(m.list, model)
		if model.Loaded {
			ready := make(chan struct{})
			close(ready)
			m.loaded[model.Name] = []*instance{{id: model.Name, num: 1, ready: ready, context: min(4096, model.Context),
				keep: defaultKeep, forever: true, cut: make(chan struct{})}}
		}
	}
}

// all returns the models, the newest first.
func (m *models) all() []Model {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.list)
}

// find returns a model by its name as the list has it.
func (m *models) find(name string) (Model, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := m.indexLocked(name)
	if i < 0 {
		return Model{}, false
	}
	return m.list[i], true
}

func (m *models) indexLocked(name string) int {
	return slices.IndexFunc(m.list, func(have Model) bool { return have.Name == name })
}

// put adds a model, or replaces the one of its name.
func (m *models) put(model Model) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := m.indexLocked(model.Name); i >= 0 {
		m.list = slices.Delete(m.list, i, i+1)
	}
	m.list = slices.Insert(m.list, 0, model.complete())
}

// drop deletes a model; an instance of it stays until it expires, as in Ollama.
func (m *models) drop(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := m.indexLocked(name)
	if i >= 0 {
		m.list = slices.Delete(m.list, i, i+1)
	}
	return i >= 0
}

// running is what the engines tell about a loaded instance.
type running struct {
	model   Model
	id      string
	context int
	keep    time.Duration
	forever bool
	loading bool
	users   int
}

// running returns the instances, those that are still loading included.
func (m *models) running() []running {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expireLocked()
	var list []running
	for name, instances := range m.loaded {
		model := Model{Name: name}.complete()
		if i := m.indexLocked(name); i >= 0 {
			model = m.list[i]
		}
		for _, in := range instances {
			list = append(list, running{model, in.id, in.context, in.keep, in.forever, in.loading, in.users})
		}
	}
	slices.SortFunc(list, func(a, b running) int { return strings.Compare(a.id, b.id) })
	return list
}

// isLoaded reports whether a model has an instance, and whether that is ready.
func (m *models) isLoaded(name string) (has, ready bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expireLocked()
	for _, in := range m.loaded[name] {
		has, ready = true, ready || !in.loading
	}
	return has, ready
}

func (m *models) expireLocked() {
	now := time.Now()
	for name, instances := range m.loaded {
		kept := slices.DeleteFunc(instances, func(in *instance) bool {
			return in.users == 0 && !in.forever && !in.loading && !in.until.IsZero() && now.After(in.until)
		})
		if len(kept) == 0 {
			delete(m.loaded, name)
			continue
		}
		m.loaded[name] = kept
	}
}

// unload ends an instance by its id and reports whether there was one. Its users
// go on, or are cut.
func (m *models) unload(id string, cut bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := false
	for name, instances := range m.loaded {
		kept := slices.DeleteFunc(slices.Clone(instances), func(in *instance) bool {
			if in.id != id {
				return false
			}
			found = true
			if cut {
				close(in.cut)
			}
			return true
		})
		if len(kept) == 0 {
			delete(m.loaded, name)
			continue
		}
		m.loaded[name] = kept
	}
	m.wakeLocked()
	return found
}

func (m *models) wakeLocked() {
	close(m.changed)
	m.changed, m.awaited = make(chan struct{}), false
}

// canonical returns the one name of a model that Ollama knows under many: letter
// case, registry and library do not matter, and the tag defaults to latest.
func canonical(name string) string {
	name = strings.ToLower(strings.TrimSpace(name))
	for _, prefix := range []string{"https://", "http://", "registry.ollama.ai/", "library/"} {
		name = strings.TrimPrefix(name, prefix)
	}
	name = strings.TrimSuffix(name, ":local")
	if !strings.Contains(name[strings.LastIndexByte(name, '/')+1:], ":") {
		name += ":latest"
	}
	return name
}

// badName reports whether Ollama refuses a name whatever its models.
func badName(name string) bool {
	return strings.Contains(name, "@") || strings.HasSuffix(name, ":")
}

// instanceID returns the id of the n-th instance of a model: LM Studio's second
// is "key:2".
func instanceID(name string, n int) string {
	if n <= 1 {
		return name
	}
	return name + ":" + strconv.Itoa(n)
}
