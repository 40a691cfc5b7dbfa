// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"nvpair/internal/appdir"
	"nvpair/internal/jsonrpc"
	"nvpair/shared/discovery"
)

// maxServiceBytes bounds a service code, which is a key of the node record.
const maxServiceBytes = 32

// handle serves every method in both forms: a notification is applied silently
// (DI-110).
func (s *service) handle(req *jsonrpc.Request) {
	switch req.Method {
	case discovery.MethodRegister, discovery.MethodUpdateTXT:
		s.register(req)
	case discovery.MethodUnregister:
		s.unregister(req)
	case discovery.MethodGetNodes:
		s.getNodes(req)
	case discovery.MethodReloadIdentity:
		s.reloadIdentity(req)
	case discovery.MethodReloadTrust:
		ack(req)
		s.refreshTrust()
	case discovery.MethodSetObserved:
		s.setObserved(req)
	case discovery.MethodNodeActivity:
		s.nodeActivity(req)
	case discovery.MethodStaticNode:
		s.staticNode(req)
	case discovery.MethodStaticNodeRemoved:
		s.staticNodeRemoved(req)
	default:
		s.link.Unknown(req)
	}
}

// ack says that a message has been applied, not that it changed anything
// (DI-111). It is queued before the events of the change.
func ack(req *jsonrpc.Request) { req.Reply(discovery.Ack{OK: true}) }

// refuse answers a request; who sent a notification cannot be told.
func (s *service) refuse(req *jsonrpc.Request, err error) {
	if req.IsNotification() {
		s.log.Warn("notification dropped", "method", req.Method, "err", err)
		return
	}
	req.Fail(err)
}

// setObserved takes at which of its addresses this node has been reached (DI-97).
func (s *service) setObserved(req *jsonrpc.Request) {
	var o discovery.ObservedAddresses
	if err := decode(req.Params, &o); err != nil {
		s.refuse(req, err)
		return
	}
	ack(req)
	if s.setObservedAddresses(o.Addresses) {
		s.refreshAddresses()
	}
}

// maxActivityAge bounds what is taken for an age (DI-98).
const maxActivityAge = time.Minute

func (s *service) nodeActivity(req *jsonrpc.Request) {
	var a discovery.Activity
	if err := decode(req.Params, &a); err != nil {
		s.refuse(req, err)
		return
	}
	ack(req)
	if a.HostUUID != "" && a.HostUUID != s.self.id() {
		if _, known := s.directory.node(a.HostUUID); known {
			age := min(max(time.Duration(a.AgeMillis)*time.Millisecond, 0), maxActivityAge)
			s.evidence.serves(a.HostUUID, time.Now().Add(-age))
		}
	}
}

func (s *service) register(req *jsonrpc.Request) {
	var r discovery.Registration
	err := decode(req.Params, &r)
	switch {
	case err != nil:
		s.refuse(req, err)
		return
	case r.Service == "" || r.Port == 0: // DI-111
		ack(req)
		return
	}
	if err := checkRegistration(r); err != nil {
		s.refuse(req, err)
		return
	}
	if !s.self.hasRoom(r.Service) { // only this goroutine takes the room
		s.refuse(req, errTooManyServices)
		return
	}
	ack(req)
	if s.self.register(r.Service, r.Port) {
		s.log.Info("service registered", "service", r.Service, "port", r.Port)
		if r.Service == discovery.ServiceEngines {
			s.fresh(s.self.id())
		}
	}
}

func (s *service) unregister(req *jsonrpc.Request) {
	var r discovery.Unregistration
	if err := decode(req.Params, &r); err != nil {
		s.refuse(req, err)
		return
	}
	ack(req)
	if s.self.unregister(r.Service) {
		s.log.Info("service unregistered", "service", r.Service)
	}
}

func (s *service) getNodes(req *jsonrpc.Request) {
	var filter discovery.Filter
	if decode(req.Params, &filter) != nil {
		filter = discovery.Filter{} // DI-110: all of them
	}
	list := discovery.Directory{Nodes: []discovery.DirectoryNode{}}
	for _, n := range append(s.directory.nodes(), s.self.node()) {
		if _, has := n.Services[filter.Service]; has || filter.Service == "" {
			list.Nodes = append(list.Nodes, n)
		}
	}
	slices.SortFunc(list.Nodes, func(a, b discovery.DirectoryNode) int { return cmp.Compare(a.HostUUID, b.HostUUID) })
	req.Reply(list)
}

// reloadIdentity looks at the identity and the addresses again (DI-102). A
// damaged identity keeps the old one in force.
func (s *service) reloadIdentity(req *jsonrpc.Request) {
	id, err := appdir.NodeID(s.base)
	if err != nil {
		s.log.Warn("identity not reloaded", "err", err)
		req.Fail(err)
		return
	}
	ack(req)
	s.takeIdentity(id)
	s.refreshTrust()
	s.refreshAddresses()
}

// decode reads params, which must be an object.
func decode(params json.RawMessage, into any) error {
	if len(params) == 0 || params[0] != '{' {
		return jsonrpc.InvalidParams("not an object")
	}
	if err := json.Unmarshal(params, into); err != nil {
		return jsonrpc.InvalidParams("%v", err)
	}
	return nil
}

// checkRegistration refuses what cannot stand in the node record (DI-15, DI-16)
// or would pass for one of its own keys there (DI-101).
func checkRegistration(r discovery.Registration) error {
	switch {
	case len(r.Service) > maxServiceBytes:
		return jsonrpc.InvalidParams("the service code is longer than %d bytes", maxServiceBytes)
	case strings.ContainsFunc(r.Service, func(c rune) bool { return c <= ' ' || c > '~' || c == '=' }):
		return jsonrpc.InvalidParams("a service code is visible ASCII without =")
	case isRecordKey(strings.ToLower(r.Service)):
		return jsonrpc.InvalidParams("%q is no service code but another key of the node record", r.Service)
	case r.Port < 1 || r.Port > 65535:
		return jsonrpc.InvalidParams("the port is not in 1..65535")
	}
	return nil
}

func isRecordKey(key string) bool {
	switch key {
	case "v", "uuid", "cluster-uuid", "ip", "ips":
		return true
	}
	return false
}
