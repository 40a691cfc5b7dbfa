// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"nvpair/internal/jsonrpc"
	"nvpair/shared/discovery"
	"nvpair/shared/nodeinfo"
)

// Bounds of a question to a node's node-info (DI-82, DI-83).
const (
	fetchTimeout   = 3 * time.Second
	connectTimeout = time.Second
	idleKept       = 90 * time.Second
	maxInfoBytes   = 256 << 10
)

// inventory is what a node-info says.
type inventory struct {
	hostUUID    string
	clusterUUID *string // nil when it did not say: that is not "none" (DI-89)
	gpus        json.RawMessage
	cpu, memory json.RawMessage
	static      string // of the hardware

	use    float64 // of the busiest GPU, 0..100
	valid  bool    // use is a reading
	millis int64   // its age
}

// infos asks nodes for their inventory, each at the address that answered last
// (DI-87).
type infos struct {
	http *http.Client

	mu   sync.Mutex        // guards last
	last map[string]string // address by host uuid
}

func newInfos(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *infos {
	if dial == nil {
		dial = (&net.Dialer{Timeout: connectTimeout}).DialContext
	}
	return &infos{
		last: make(map[string]string),
		http: &http.Client{
			Transport: &http.Transport{
				DialContext: dial, Proxy: nil, MaxConnsPerHost: 1, IdleConnTimeout: idleKept, DisableCompression: true,
				MaxResponseHeaderBytes: 16 << 10,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

var (
	errNoAddress = errors.New("no address to ask at")
	// errOther means that another node answered.
	errOther = errors.New("another node answered there")
)

// of asks a node. An answer under another uuid is none (NI-40); the error is then
// errOther.
func (i *infos) of(ctx context.Context, n discovery.DirectoryNode) (inventory, error) {
	port := n.Services[discovery.ServiceNodeInfo].Port
	if port == 0 || len(n.IPs) == 0 {
		return inventory{}, errNoAddress
	}
	rest := n.IPs
	if last := i.remembered(n); last != "" {
		got, err := i.ask(ctx, last, port, n.HostUUID)
		if err == nil {
			return got, nil
		}
		i.forget(n.HostUUID)
		if rest = slices.DeleteFunc(slices.Clone(rest), func(ip string) bool { return ip == last }); len(rest) == 0 {
			return inventory{}, err
		}
	}
	answers := make([]inventory, len(rest))
	errs := make([]error, len(rest))
	atOnce(len(rest), len(rest), func(k int) { answers[k], errs[k] = i.ask(ctx, rest[k], port, n.HostUUID) })
	for k := range rest { // the best-ranked one, not the quickest
		if errs[k] == nil {
			i.remember(n.HostUUID, rest[k])
			return answers[k], nil
		}
	}
	return inventory{}, errors.Join(errs...)
}

func (i *infos) remembered(n discovery.DirectoryNode) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if last := i.last[n.HostUUID]; slices.Contains(n.IPs, last) {
		return last
	}
	return ""
}

func (i *infos) remember(uuid, ip string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.last[uuid] = ip
}

func (i *infos) forget(uuid string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.last, uuid)
}

// prune forgets whoever is gone.
func (i *infos) prune(gone func(uuid string) bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	maps.DeleteFunc(i.last, func(uuid, _ string) bool { return gone(uuid) })
}

// ask asks at one address. The answer of a node that does not say who it is counts
// for the one that was meant.
func (i *infos) ask(ctx context.Context, ip string, port int, want string) (inventory, error) {
	got, err := i.get(ctx, ip, port)
	if err == nil && got.hostUUID != "" && got.hostUUID != want {
		return got, fmt.Errorf("%w: %s", errOther, got.hostUUID)
	}
	return got, err
}

func (i *infos) get(ctx context.Context, ip string, port int) (inventory, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	url := "http://" + net.JoinHostPort(ip, strconv.Itoa(port)) + nodeinfo.Path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return inventory{}, err
	}
	resp, err := i.http.Do(req)
	if err != nil {
		return inventory{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxInfoBytes+1))
	switch {
	case err != nil:
		return inventory{}, err
	case resp.StatusCode != http.StatusOK:
		return inventory{}, fmt.Errorf("status %d", resp.StatusCode)
	case len(raw) > maxInfoBytes:
		return inventory{}, errors.New("answer is too long")
	}
	return parseInventory(raw)
}

// Bounds of what another node says of its hardware: all nodes' words together are
// one message to the other workers.
const (
	maxGPUs         = 32
	maxHardwareName = 128
)

// parseInventory reads an answer. What it says of the hardware is bounded and
// written anew: it is passed on to every process that knows the node.
func parseInventory(raw []byte) (inventory, error) {
	var a nodeinfo.NodeInfo
	if err := json.Unmarshal(raw, &a); err != nil {
		return inventory{}, err
	}
	i := inventory{
		hostUUID: label(a.HostUUID), clusterUUID: a.ClusterUUID, valid: a.TelemetryValid, millis: max(a.AgeMillis, 0),
	}
	if a.ClusterUUID != nil && len(*a.ClusterUUID) > maxLabel {
		i.clusterUUID = nil
	}
	a.GPUs = a.GPUs[:min(len(a.GPUs), maxGPUs)]
	for k := range a.GPUs {
		g := &a.GPUs[k]
		g.Name, g.UsePct = short(g.Name), min(g.UsePct, 100)
		i.use = max(i.use, float64(g.UsePct))
	}
	if len(a.GPUs) > 0 {
		i.gpus = encode(a.GPUs)
	}
	if a.CPU != nil {
		a.CPU.Name = short(a.CPU.Name)
		i.cpu = encode(a.CPU)
	}
	if a.Memory != nil {
		i.memory = encode(a.Memory)
	}
	i.static = staticOf(i.gpus, i.cpu, i.memory)
	return i, nil
}

func short(name string) string {
	if len(name) > maxHardwareName {
		name = name[:maxHardwareName]
	}
	return strings.ToValidUTF8(name, "")
}

// encode is for what always encodes.
func encode(v any) json.RawMessage {
	raw, err := jsonrpc.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

// atOnce calls f for 0..n-1, at most so many at once, and waits for all.
func atOnce(n, most int, f func(i int)) {
	slots := make(chan struct{}, max(most, 1))
	var wg sync.WaitGroup
	for i := range n {
		slots <- struct{}{} // freed by the calls, which end by themselves
		wg.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	wg.Wait()
}
