// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"errors"
	"maps"
	"slices"
	"sync"
)

// places is at which address each node answered last, for one of its services
// (DI-87).
type places struct {
	mu   sync.Mutex        // guards last
	last map[string]string // by host uuid
}

// askAt asks a node at the address that answered last, and if that fails at all
// others at once; it takes the answer of the best-ranked one, not of the quickest.
func askAt[T any](p *places, uuid string, ips []string, ask func(ip string) (T, error)) (T, error) {
	var none T
	if len(ips) == 0 {
		return none, errNoAddress
	}
	if last := p.of(uuid); slices.Contains(ips, last) {
		got, err := ask(last)
		if err == nil {
			return got, nil
		}
		p.forget(uuid)
		if ips = slices.DeleteFunc(slices.Clone(ips), func(ip string) bool { return ip == last }); len(ips) == 0 {
			return none, err
		}
	}
	answers := make([]T, len(ips))
	errs := make([]error, len(ips))
	atOnce(len(ips), len(ips), func(k int) { answers[k], errs[k] = ask(ips[k]) })
	for k, ip := range ips {
		if errs[k] == nil {
			p.remember(uuid, ip)
			return answers[k], nil
		}
	}
	return none, errors.Join(errs...)
}

// of returns where a node answered last, "" if it did not or failed since.
func (p *places) of(uuid string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last[uuid]
}

func (p *places) remember(uuid, ip string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		p.last = make(map[string]string)
	}
	p.last[uuid] = ip
}

func (p *places) forget(uuid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.last, uuid)
}

// prune forgets whoever is gone.
func (p *places) prune(gone func(uuid string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.last, func(uuid, _ string) bool { return gone(uuid) })
}
