// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"nvpair/internal/jsonrpc"
	"nvpair/internal/upstream"
	"nvpair/shared/discovery"
	"nvpair/shared/nodeinfo"
)

// Bounds of a question to a node's node-info (DI-82, DI-83).
const (
	fetchTimeout   = 3 * time.Second
	connectTimeout = time.Second
	idleKept       = 90 * time.Second
	maxInfoBytes   = 256 << 10
	maxHeadBytes   = 16 << 10
)

// inventory is what a node-info says.
type inventory struct {
	at          string // the address at which it was asked
	hostUUID    string
	clusterUUID *string                      // nil when it did not say: that is not "none" (DI-89)
	services    map[string]discovery.Service // nil when it did not say
	said        nodeinfo.NodeInfo

	// Filled by described.
	gpus, cpu, memory json.RawMessage
	static            string // of the hardware

	use    float64 // of the busiest GPU, 0..100
	valid  bool    // use is a reading
	millis int64   // its age
}

// infos asks nodes for their inventory.
type infos struct {
	pool   *upstream.Pool
	places places

	mu    sync.Mutex       // guards turns
	turns map[string]*turn // by address and port, while anybody asks there
}

func newInfos(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *infos {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return &infos{
		turns: make(map[string]*turn),
		pool:  newPool(func(ctx context.Context, addr string) (net.Conn, error) { return dial(ctx, "tcp", addr) }),
	}
}

// newPool returns connections for short questions: of those to one address, one is
// kept.
func newPool(dial func(ctx context.Context, addr string) (net.Conn, error)) *upstream.Pool {
	return upstream.NewPool(upstream.Config{
		Dial: dial, DialTimeout: connectTimeout, IdleTimeout: idleKept, MaxIdle: 1, MaxHeadBytes: maxHeadBytes,
	})
}

// close closes the connections that nobody waits on.
func (i *infos) close() { i.pool.Close() }

var (
	errNoAddress = errors.New("no address to ask at")
	// errOther means that another node answered.
	errOther = errors.New("another node answered there")
	// errNoNode means that what answered has no inventory at all.
	errNoNode = errors.New("what answers there is no node")
)

// of asks a node. An answer under another uuid is none (NI-40); the error is then
// errOther.
func (i *infos) of(ctx context.Context, n discovery.DirectoryNode) (inventory, error) {
	port := n.Services[discovery.ServiceNodeInfo].Port
	if port == 0 {
		return inventory{}, errNoAddress
	}
	return askAt(&i.places, n.HostUUID, n.IPs, func(ip string) (inventory, error) { return i.ask(ctx, ip, port, n.HostUUID) })
}

// ask asks at one address. The answer of a node that does not say who it is counts
// for the one that was meant.
func (i *infos) ask(ctx context.Context, ip string, port int, want string) (inventory, error) {
	got, err := i.get(ctx, ip, port)
	got.at = ip
	if err == nil && got.hostUUID != "" && got.hostUUID != want {
		return got, fmt.Errorf("%w: %s", errOther, got.hostUUID)
	}
	return got, err
}

func (i *infos) get(ctx context.Context, ip string, port int) (inventory, error) {
	addr := net.JoinHostPort(ip, strconv.Itoa(port))
	free, err := i.take(ctx, addr)
	if err != nil {
		return inventory{}, err
	}
	defer free()
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	raw, err := fetch(ctx, i.pool, addr, nodeinfo.Path, maxInfoBytes)
	if err != nil {
		return inventory{}, err
	}
	return parseInventory(raw)
}

// fetch returns the body of an answer with status 200.
func fetch(ctx context.Context, pool *upstream.Pool, addr, target string, maxBytes int64) ([]byte, error) {
	resp, err := pool.Do(ctx, &upstream.Request{Addr: addr, Method: http.MethodGet, Target: target, Host: addr})
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxBytes+1))
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode == http.StatusNotFound:
		return nil, errNoNode
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("status %d", resp.StatusCode)
	case int64(len(raw)) > maxBytes:
		return nil, errors.New("answer is too long")
	}
	return raw, nil
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
		return inventory{}, fmt.Errorf("%w: %v", errNoNode, err)
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
	if a.CPU != nil {
		a.CPU.Name = short(a.CPU.Name)
	}
	i.said = a
	if a.Services != nil {
		i.services = make(map[string]discovery.Service)
		for code, port := range a.Services {
			if isServiceCode(code) && port >= 1 && port <= 65535 && len(i.services) < maxRemoteServices {
				i.services[code] = discovery.Service{Port: port}
			}
		}
	}
	return i, nil
}

// described adds the hardware in the form in which it is passed on. Who only wants
// the load spares itself that.
func (i inventory) described() inventory {
	i.gpus, i.cpu, i.memory = nil, nil, nil
	if len(i.said.GPUs) > 0 {
		i.gpus = encode(i.said.GPUs)
	}
	if i.said.CPU != nil {
		i.cpu = encode(i.said.CPU)
	}
	if i.said.Memory != nil {
		i.memory = encode(i.said.Memory)
	}
	i.static = staticOf(i.gpus, i.cpu, i.memory)
	return i
}

func short(name string) string {
	if len(name) > maxHardwareName {
		name = name[:maxHardwareName]
	}
	return plain(strings.ToValidUTF8(name, ""))
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
