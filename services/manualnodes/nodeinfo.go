// SPDX-License-Identifier: Apache-2.0

package manualnodes

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	wire "nvpair/shared/manualnodes"
)

const (
	maxAddresses = 8 // of one name
	// othersWithin is how long the other addresses of a name have once one has answered.
	othersWithin = 500 * time.Millisecond
)

// nodeInfo is what matters here of node-info's answer.
type nodeInfo struct {
	GPUs           json.RawMessage `json:"GPUs"`
	CPU            json.RawMessage `json:"cpu"`
	Memory         json.RawMessage `json:"memory"`
	TelemetryValid bool            `json:"telemetryValid"`
	AgeMillis      int64           `json:"msSince"`
	HostUUID       string          `json:"hostUuid"`
	Services       json.RawMessage `json:"services"` // whatever it is, it marks a peer
}

// ofOurKind reports whether a machine runs this product: an identity is enough, for
// an earlier release tells no services (DEC-118).
func (i *nodeInfo) ofOurKind() bool {
	return i.HostUUID != "" || i.Services != nil && string(i.Services) != "null"
}

// nodeInfo asks at all addresses of the node at once, so that one that leads nowhere
// holds up nothing. The first that answers, in the order of the resolver, is the
// node; addresses are those at which it answers.
func (p *prober) nodeInfo(ctx context.Context, target wire.Status) (info *nodeInfo, addresses []string, err error) {
	list, err := p.resolve(ctx, target.Address)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	infos, errs := make([]*nodeInfo, len(list)), make([]error, len(list))
	var wg sync.WaitGroup
	for i, addr := range list {
		wg.Go(func() {
			if infos[i], errs[i] = p.nodeInfoAt(context.WithValue(ctx, addressKey{}, addr), target); errs[i] == nil {
				time.AfterFunc(othersWithin, cancel)
			}
		})
	}
	wg.Wait()
	first := slices.Index(errs, nil)
	if first < 0 {
		return nil, nil, errs[0]
	}
	return infos[first], reached(list, infos, infos[first].HostUUID, target.Addresses), nil
}

// reached returns the addresses at which the node with that identity answers, in an
// order of their own. One at which it did before stays while nobody answers there, or
// a slow one would come and go.
func reached(list []netip.Addr, infos []*nodeInfo, hostUUID string, before []string) []string {
	var found []netip.Addr
	for i, addr := range list {
		if addr.Is6() && (addr.IsLinkLocalUnicast() || addr.Zone() != "") {
			continue // means nothing to anybody else
		}
		if infos[i] != nil && infos[i].HostUUID == hostUUID || infos[i] == nil && slices.Contains(before, addr.String()) {
			found = append(found, addr)
		}
	}
	slices.SortFunc(found, netip.Addr.Compare) // IPv4 first
	var texts []string
	for _, addr := range found {
		texts = append(texts, addr.String())
	}
	return texts
}

// resolve returns the addresses of a node, each once and a few at most. A name is
// looked up anew each time: it may lead elsewhere by now.
func (p *prober) resolve(ctx context.Context, address string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(address); err == nil {
		return []netip.Addr{addr.Unmap()}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	found, err := p.lookup(ctx, address)
	if err != nil {
		return nil, plain(err)
	}
	var list []netip.Addr
	for _, addr := range found {
		if addr = addr.Unmap(); len(list) < maxAddresses && !slices.Contains(list, addr) {
			list = append(list, addr)
		}
	}
	if len(list) == 0 {
		return nil, errLookup
	}
	return list, nil
}

func (p *prober) nodeInfoAt(ctx context.Context, target wire.Status) (*nodeInfo, error) {
	scheme := "http"
	if target.TLSEnabled {
		scheme = "https"
	}
	body, err := p.get(ctx, scheme, target.Address, target.NodeInfoPort, "/v1/node-info")
	if err != nil {
		return nil, err
	}
	info := new(nodeInfo)
	if err := json.Unmarshal(body, info); err != nil {
		return nil, errors.New("its answer is not that of node-info")
	}
	if len(info.HostUUID) > maxIDBytes {
		info.HostUUID = ""
	}
	if !info.TelemetryValid || info.AgeMillis < 0 {
		info.AgeMillis = 0
	}
	return info, nil
}

// full returns a part of node-info, nil for one that is empty, over-long or of
// another kind than its first byte says.
func full(part json.RawMessage, first byte) json.RawMessage {
	if len(part) <= len("{}") || part[0] != first || len(part) > maxInfoBytes {
		return nil
	}
	return part
}

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// addressKey is the key of the address, a netip.Addr, to which a request goes
// whatever its host resolves to.
type addressKey struct{}

// endingWith bounds attempts to connect: the transport leaves one alone when the
// request that it was for has ended.
func endingWith(end context.Context, dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		defer context.AfterFunc(end, cancel)()
		return dial(ctx, network, addr)
	}
}

// atAddress connects to the address of addressKey, if there is one.
func atAddress(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if at, ok := ctx.Value(addressKey{}).(netip.Addr); ok {
			if _, port, err := net.SplitHostPort(addr); err == nil {
				addr = net.JoinHostPort(at.String(), port)
			}
		}
		return dial(ctx, network, addr)
	}
}
