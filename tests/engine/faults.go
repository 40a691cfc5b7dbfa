// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Kind says what a fault does.
type Kind string

// Moment says when in a request it does that.
type Moment string

// Fault is one thing that goes wrong. Its selectors are all to hold; an empty
// one holds for every request.
type Fault struct {
	ID   string `json:"id,omitempty"` // given by Add
	Kind Kind   `json:"kind"`
	At   Moment `json:"at,omitempty"` // default: see Kind

	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`  // exact, or a beginning that ends in "*"
	Model  string `json:"model,omitempty"` // as the request spells it, letter case aside
	Skip   int    `json:"skip,omitempty"`  // matching requests that pass first
	Times  int    `json:"times,omitempty"` // matching requests it then hits; 0 is all

	After   int               `json:"after,omitempty"` // chunks before mid-stream; 0 is the middle
	Ms      int64             `json:"ms,omitempty"`    // a time in milliseconds; 0 is for ever, or the kind's default
	Bytes   int               `json:"bytes,omitempty"` // a size
	Status  int               `json:"status,omitempty"`
	Message string            `json:"message,omitempty"` // in place of the engine's own words
	Body    *string           `json:"body,omitempty"`    // in place of the whole body; "" is an empty one
	Headers map[string]string `json:"headers,omitempty"` // added to the answer
	Close   bool              `json:"close,omitempty"`   // the answer says Connection: close
	Form    string            `json:"form,omitempty"`    // which of the kind's forms

	Hits int64 `json:"hits"` // requests hit so far; only told
}

// fault is a Fault at work.
type fault struct {
	Fault
	seen    atomic.Int64
	hits    atomic.Int64
	cleared chan struct{} // closed when it is removed, which ends its waits
}

func (f *fault) duration() time.Duration {
	if f == nil {
		return 0
	}
	return time.Duration(f.Ms) * time.Millisecond
}

// Faults is the list of what goes wrong, which may change at any time. A change
// holds for requests whose head comes in later; waits end when their fault is
// removed.
type Faults struct {
	list atomic.Pointer[[]*fault] // replaced whole; nil is none, which is all that a request then costs

	mu   sync.Mutex // held by those who change list
	next int
}

// Add switches faults on and returns their ids.
func (s *Faults) Add(faults ...Fault) ([]string, error) {
	for _, f := range faults {
		if err := f.check(); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list := slices.Clone(s.all())
	var ids []string
	for _, f := range faults {
		s.next++
		f.ID = "f" + strconv.Itoa(s.next)
		ids = append(ids, f.ID)
		list = append(list, &fault{Fault: f, cleared: make(chan struct{})})
	}
	s.list.Store(&list)
	return ids, nil
}

// Set is Add after Clear.
func (s *Faults) Set(faults ...Fault) error {
	for _, f := range faults {
		if err := f.check(); err != nil {
			return err
		}
	}
	s.Clear()
	_, err := s.Add(faults...)
	return err
}

// Clear switches all faults off.
func (s *Faults) Clear() { s.remove(func(*fault) bool { return true }) }

// Remove switches one fault off and reports whether there was one.
func (s *Faults) Remove(id string) bool { return s.remove(func(f *fault) bool { return f.ID == id }) }

func (s *Faults) remove(which func(*fault) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var kept []*fault
	found := false
	for _, f := range s.all() {
		if !which(f) {
			kept = append(kept, f)
			continue
		}
		found = true
		close(f.cleared)
	}
	if kept == nil {
		s.list.Store(nil)
		return found
	}
	s.list.Store(&kept)
	return found
}

// List returns the faults that are on.
func (s *Faults) List() []Fault {
	list := []Fault{}
	for _, f := range s.all() {
		out := f.Fault
		out.Hits = f.hits.Load()
		list = append(list, out)
	}
	return list
}

func (s *Faults) all() []*fault {
	if p := s.list.Load(); p != nil {
		return *p
	}
	return nil
}

func (s *Faults) some() bool { return s.list.Load() != nil }

// choose adds to the plan of a request the faults that hit it: before its body
// is known those that ask for no model, afterwards those that do.
func (s *Faults) choose(x *exchange, withModel bool) {
	for _, f := range s.all() {
		if (f.Model != "") != withModel || f.At == AtAccept || f.At == AtFirstByte || !f.matches(x) {
			continue
		}
		if f.turn() {
			x.plan = append(x.plan, f)
		}
	}
}

// atConnection returns the fault that hits a connection at a moment at which
// there is no request yet.
func (s *Faults) atConnection(m Moment) *fault {
	for _, f := range s.all() {
		if f.At == m && f.turn() {
			return f
		}
	}
	return nil
}

func (f *fault) matches(x *exchange) bool {
	if f.Method != "" && f.Method != x.method {
		return false
	}
	if prefix, ok := strings.CutSuffix(f.Path, "*"); ok {
		if !strings.HasPrefix(x.path, prefix) {
			return false
		}
	} else if f.Path != "" && f.Path != x.path {
		return false
	}
	return f.Model == "" || strings.EqualFold(f.Model, x.p.model)
}

// turn counts a match and reports whether the fault hits it.
func (f *fault) turn() bool {
	n := f.seen.Add(1) - int64(f.Skip)
	if n <= 0 || f.Times > 0 && n > int64(f.Times) {
		return false
	}
	f.hits.Add(1)
	return true
}

// check refuses what would silently do nothing.
func (f Fault) check() error {
	k, ok := kinds[f.Kind]
	if !ok {
		return fmt.Errorf("unknown kind of fault %q", f.Kind)
	}
	if f.At != "" && !slices.Contains(moments, f.At) {
		return fmt.Errorf("%s: unknown moment %q", f.Kind, f.At)
	}
	if f.Form != "" && !slices.Contains(k.forms, f.Form) || f.Form == "" && k.needsForm {
		return fmt.Errorf("%s: form %q is none of %q", f.Kind, f.Form, k.forms)
	}
	if (f.At == AtAccept || f.At == AtFirstByte) && f.Kind != KindCut && f.Kind != KindReset {
		return fmt.Errorf("%s: no request is known at %s", f.Kind, f.At)
	}
	if f.Kind == KindStatus && (f.Status < 200 || f.Status > 599) {
		return fmt.Errorf("status: %d is no status of an answer", f.Status)
	}
	return nil
}
