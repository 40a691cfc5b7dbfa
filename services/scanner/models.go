// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"nvpair/internal/clustertrust"
	"nvpair/internal/upstream"
	"nvpair/shared/discovery"
)

// Bounds of a question for models (DI-85), and of what an answer may name: it is
// passed on to every process that knows the node.
const (
	modelsTimeout   = 6 * time.Second
	modelsPath      = "/v1/models"
	maxModelsBytes  = 1 << 20
	maxModelEngines = 32
	maxModels       = 2000     // in all lists of a node together
	maxModelNames   = 48 << 10 // bytes of all names in them
)

// modelList is what an engine manager says of its models. A nil map is one that it
// did not send; an empty list in a map is an engine without any (DI-72, DI-91).
type modelList struct {
	Models []string            `json:"models"`
	By     map[string][]string `json:"modelsByEngine"`
	Loaded map[string][]string `json:"loadedByEngine"`
}

// models asks engine managers for their models: this node's own in the clear over
// loopback, a member's over TLS with its pinned certificate, nobody else's at all
// (DI-86).
type models struct {
	trust  *clustertrust.View
	dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	plain  *upstream.Pool
	places places

	mu    sync.Mutex // guards pools
	pools map[string]*upstream.Pool
}

// of asks a node.
func (m *models) of(ctx context.Context, n discovery.DirectoryNode) (modelList, error) {
	port := n.Services[discovery.ServiceEngines].Port
	if port == 0 {
		return modelList{}, errNoAddress
	}
	return askAt(&m.places, n.HostUUID, n.IPs, func(ip string) (modelList, error) {
		ctx, cancel := context.WithTimeout(ctx, modelsTimeout)
		defer cancel()
		pool := m.plain
		if a, err := netip.ParseAddr(ip); err != nil || !a.IsLoopback() {
			if pool = m.secured(n.ClusterUUID); pool == nil {
				return modelList{}, clustertrust.ErrNotPinned
			}
		}
		raw, err := fetch(ctx, pool, net.JoinHostPort(ip, strconv.Itoa(port)), modelsPath, maxModelsBytes)
		if err != nil {
			return modelList{}, err
		}
		return parseModels(raw)
	})
}

// secured returns the connections to a member, nil for anybody else.
func (m *models) secured(principal string) *upstream.Pool {
	if !m.trust.Refresh().Trusts(principal) {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	pool := m.pools[principal]
	if pool == nil {
		config := m.trust.Client(principal)
		pool = newPool(func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := m.dial(ctx, "tcp", addr)
			if err != nil {
				return nil, err
			}
			secured := tls.Client(conn, config)
			if err := secured.HandshakeContext(ctx); err != nil {
				_ = conn.Close()
				return nil, err
			}
			return secured, nil
		})
		m.pools[principal] = pool
	}
	return pool
}

// reset closes what is idle: whatever was learned of certificates is to be looked at
// again.
func (m *models) reset() {
	m.mu.Lock()
	pools := m.pools
	m.pools = make(map[string]*upstream.Pool)
	m.mu.Unlock()
	for _, p := range pools {
		p.Close()
	}
}

func parseModels(raw []byte) (modelList, error) {
	var l modelList
	if err := json.Unmarshal(raw, &l); err != nil {
		return modelList{}, err
	}
	var b namesBudget
	l.By, l.Loaded, l.Models = b.engines(l.By), b.engines(l.Loaded), b.names(l.Models)
	return l, nil
}

// namesBudget is what a node's lists have used of maxModels and maxModelNames.
type namesBudget struct{ count, bytes int }

func (b *namesBudget) engines(by map[string][]string) map[string][]string {
	if by == nil {
		return nil
	}
	out := make(map[string][]string, min(len(by), maxModelEngines))
	for _, engine := range slices.Sorted(maps.Keys(by)) {
		if len(out) < maxModelEngines && isServiceCode(engine) {
			out[engine] = b.names(by[engine])
		}
	}
	return out
}

// names is never nil: an engine that has none has none, which is known.
func (b *namesBudget) names(names []string) []string {
	out := make([]string, 0, min(len(names), maxModels))
	for _, name := range names {
		b.bytes += len(name)
		if b.count == maxModels || b.bytes > maxModelNames {
			break
		}
		if name = label(name); name != "" {
			out = append(out, name)
			b.count++
		}
	}
	return out
}

// same reports whether two answers say the same: neither order nor repetition counts,
// and a map that was not sent is like an empty one (DI-90).
func (l modelList) same(other modelList) bool {
	return sameSet(l.Models, other.Models) && maps.EqualFunc(l.By, other.By, sameSet) && maps.EqualFunc(l.Loaded, other.Loaded, sameSet)
}

func sameSet(a, b []string) bool {
	if slices.Equal(a, b) {
		return true
	}
	a, b = slices.Compact(slices.Sorted(slices.Values(a))), slices.Compact(slices.Sorted(slices.Values(b)))
	return slices.Equal(a, b)
}

// takeModels asks a node for its models. A failure changes nothing (DI-90).
func (s *service) takeModels(ctx context.Context, n discovery.DirectoryNode) {
	if n.Services[discovery.ServiceEngines].Port == 0 {
		return
	}
	got, err := s.models.of(ctx, n)
	if err != nil {
		s.log.Debug("node did not tell its models", "node", n.HostUUID, "err", err)
		return
	}
	if n.HostUUID == s.self.id() {
		s.self.learnModels(got)
	} else {
		s.directory.learnModels(n, got)
	}
}
