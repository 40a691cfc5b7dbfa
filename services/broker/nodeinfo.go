// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"encoding/json"
	"errors"

	"nvpair/internal/jsonrpc"
	"nvpair/shared/discovery"
	"nvpair/shared/nodeinfo"
)

// nodeInfoSpawned tells a new node-info what it is to answer besides hardware:
// in which cluster this node is, and where its services are.
func nodeInfoSpawned(_ context.Context, b *Broker, l *workerLink) {
	b.membership.spawned(l)
	b.registrations.follow(l)
}

// nodeInfoAnnounced advertises the inventory. It is not done at the spawn: a
// node-info says hello only once it has its port, and where another program holds
// that, nobody is sent there.
func nodeInfoAnnounced(b *Broker) {
	b.registrations.set(discovery.Registration{Service: discovery.ServiceNodeInfo, Port: discovery.PortNodeInfo})
}

func (b *Broker) nodeInfoEnded() { b.registrations.remove(discovery.ServiceNodeInfo) }

// fromNodeInfo passes on at which addresses peers reach this machine: evidence
// for the order in which the scanner publishes them (DI-127). The call is only
// queued here; a list that is lost is followed by the next in 30 s.
func (b *Broker) fromNodeInfo(l *workerLink, req *jsonrpc.Request) bool {
	if req.Method != nodeinfo.NotifyObservedAddresses {
		return false
	}
	var seen nodeinfo.ObservedAddresses
	err := json.Unmarshal(req.Params, &seen)
	if err == nil && seen.Addresses == nil {
		err = errors.New("addresses are missing") // which is not that there are none
	}
	if err != nil {
		l.undecodable(req, err)
		return true
	}
	scanner := b.byName[workerScanner].current()
	if scanner == nil {
		b.cfg.Log.Debug("no scanner, dropped", "method", req.Method)
		return true
	}
	scanner.conn.Start(discovery.MethodSetObserved, encode(seen), relayDeadline, func(resp jsonrpc.Response) {
		if _, err := resp.Decode(); err != nil {
			b.cfg.Log.Debug("observed addresses not passed on", "err", err)
		}
	})
	return true
}
