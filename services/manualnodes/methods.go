// SPDX-License-Identifier: Apache-2.0

package manualnodes

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"nvpair/internal/jsonrpc"
	wire "nvpair/shared/manualnodes"
	"nvpair/shared/serviceerror"
)

const (
	maxNodes        = 64 // with maxModelBytes, all of them fit a frame
	maxAddressBytes = 253
	maxNameBytes    = 128
)

// handle serves requests; as notifications these methods have no effect (MN-6).
func (s *service) handle(req *jsonrpc.Request) {
	if req.IsNotification() {
		s.link.Unknown(req)
		return
	}
	switch req.Method {
	case wire.MethodAdd:
		s.add(req)
	case wire.MethodRemove:
		s.remove(req)
	case wire.MethodList:
		req.Reply(s.all())
	default:
		s.link.Unknown(req)
	}
}

// add takes a node, or what is new about one whose address, or id, is known
// (DEC-66), and probes it at once.
func (s *service) add(req *jsonrpc.Request) {
	var a wire.Add
	if err := decodeObject(req.Params, &a); err != nil {
		req.Fail(err)
		return
	}
	a.Address = cleanAddress(a.Address)
	if err := checkAdd(a); err != nil {
		req.Fail(err)
		return
	}
	if err := checkMachine(a.Address); err != nil {
		req.Fail(err)
		return
	}
	entry := s.list.find(a)
	if entry.ID == "" {
		entry = saved{ID: cmp.Or(a.Name, wire.IDPrefix+a.Address)}
		if len(s.list.entries) >= maxNodes {
			req.Fail(jsonrpc.Errorf(jsonrpc.CodeFailed, "there are %d nodes already, which is the most; remove one first", maxNodes))
			return
		}
	}
	if err := s.list.put(entry.with(a)); err != nil {
		s.log.Warn("list of nodes not saved", "err", err)
		req.Fail(jsonrpc.Errorf(jsonrpc.CodeInternal, "%v", err))
		return
	}
	s.listWritten()
	s.log.Info("node added", "node", entry.ID, "addr", a.Address)
	s.mu.Lock()
	defer s.mu.Unlock()
	req.Reply(s.takeLocked(entry.with(a)))
	select {
	case s.some <- struct{}{}:
	default:
	}
}

// decodeObject refuses what is no object.
func decodeObject(params json.RawMessage, into any) error {
	if text := strings.TrimSpace(string(params)); !strings.HasPrefix(text, "{") {
		return jsonrpc.InvalidParams("not an object")
	}
	if err := json.Unmarshal(params, into); err != nil {
		return jsonrpc.InvalidParams("%v", err)
	}
	return nil
}

// cleanAddress takes off what people copy along: blanks, the brackets of an IPv6
// literal, and the full stop behind a literal.
func cleanAddress(a string) string {
	a = strings.TrimSpace(a)
	if inner, ok := strings.CutPrefix(a, "["); ok && strings.HasSuffix(inner, "]") {
		a = strings.TrimSuffix(inner, "]")
	}
	if literal, ok := strings.CutSuffix(a, "."); ok {
		if _, err := netip.ParseAddr(literal); err == nil {
			return literal
		}
	}
	return a
}

// checkAdd refuses what can never be reached, with a word on what to type (MN-10).
func checkAdd(a wire.Add) error {
	switch {
	case a.Address == "":
		return jsonrpc.InvalidParams(`"address" is required: a host name or an IP address, such as 192.168.1.20`)
	case len(a.Address) > maxAddressBytes:
		return jsonrpc.InvalidParams(`"address" is longer than %d bytes`, maxAddressBytes)
	case len(a.Name) > maxNameBytes || strings.ContainsFunc(a.Name, unicode.IsControl):
		return jsonrpc.InvalidParams(`"name" is longer than %d bytes or not one line of text`, maxNameBytes)
	case a.TLSPort != nil && badPort(*a.TLSPort):
		return jsonrpc.InvalidParams(`"tls_port" must be 1..65535, or 0 for none`)
	case a.Ports != nil && (badPort(a.Ports.NodeInfo) || badPort(a.Ports.Ollama) || badPort(a.Ports.LMStudio)):
		return jsonrpc.InvalidParams(`"ports" must be 1..65535, or 0 for the usual ones`)
	}
	return checkAddress(a.Address)
}

func badPort(p int) bool { return p < 0 || p > 65535 }

func checkAddress(a string) error {
	if ip, err := netip.ParseAddr(a); err == nil && !strings.ContainsFunc(ip.Zone(), notOfAHost) {
		return nil
	}
	switch {
	case strings.Contains(a, "/"):
		return jsonrpc.InvalidParams(`%q is not an address: type the host name or IP address alone, without http:// and without a path, such as 192.168.1.20`, a)
	case strings.Contains(a, ":"):
		host, port, _ := strings.Cut(a, ":")
		return jsonrpc.InvalidParams(`%q is not an address: type it without the port, and if an engine is not at its usual one, give its port as "ports", such as {"address":%q,"ports":{"ollama":%s}}`,
			a, host, portLike(port))
	case !utf8.ValidString(a), strings.ContainsFunc(a, notOfAHost):
		return jsonrpc.InvalidParams("%q is not a host name or an IP address", a)
	}
	return nil
}

// checkMachine refuses addresses of the right form that no single machine can be
// asked at from here. Lists that were written before are not judged by it.
func checkMachine(a string) error {
	ip, err := netip.ParseAddr(a)
	plain := ip.Unmap()
	switch {
	case err != nil && numeric(a):
		return jsonrpc.InvalidParams("%q is not an IP address: it takes four numbers up to 255 with dots between them, such as 192.168.1.20, or type the host name", a)
	case err != nil:
	case plain.IsMulticast():
		return jsonrpc.InvalidParams("%q is a multicast address, which stands for many machines: type the machine's own address, such as 192.168.1.20, or its host name", a)
	case plain == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return jsonrpc.InvalidParams("%q is the broadcast address, which stands for all machines: type the machine's own address, such as 192.168.1.20, or its host name", a)
	case plain.Is6() && plain.IsLinkLocalUnicast() && plain.Zone() == "":
		return jsonrpc.InvalidParams("%q is a link-local address, which does not say in which network it is: type another address of the machine, such as 192.168.1.20, or its host name", a)
	}
	return nil
}

// numeric reports whether the last label of a name is a number, which no name ends
// in (RFC 1123): it is a mistyped IPv4 literal.
func numeric(name string) bool {
	name = strings.TrimSuffix(name, ".")
	last := name[strings.LastIndexByte(name, '.')+1:]
	return last != "" && strings.Trim(last, "0123456789") == ""
}

// portLike is a port to show as an example: what was typed, if it is one.
func portLike(text string) string {
	if text == "" || len(text) > 5 || strings.Trim(text, "0123456789") != "" {
		return "11500"
	}
	return text
}

// notOfAHost reports a rune that is in no name; letters of all scripts may be.
func notOfAHost(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && !strings.ContainsRune(".-_", r)
}

func (s *service) remove(req *jsonrpc.Request) {
	var r wire.Remove
	if err := decodeObject(req.Params, &r); err != nil {
		req.Fail(err)
		return
	}
	if !s.list.has(r.ID) {
		req.Reply(wire.Removed{})
		return
	}
	if err := s.list.drop(r.ID); err != nil {
		s.log.Warn("list of nodes not saved", "err", err)
		req.Fail(jsonrpc.Errorf(jsonrpc.CodeInternal, "%v", err))
		return
	}
	s.listWritten()
	s.log.Info("node removed", "node", r.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[r.ID]; n != nil {
		n.cancel()
		delete(s.nodes, r.ID)
	}
	s.emit(wire.NotifyRemoved, wire.Status{ID: r.ID})
	req.Reply(wire.Removed{Removed: true})
	s.emit(serviceerror.MethodClear, serviceerror.Clear{ID: wire.ErrorID(r.ID)}) // MN-13: whether it stands or not
}

// all is the result of nodes/list.
func (s *service) all() wire.Nodes {
	s.mu.Lock()
	defer s.mu.Unlock()
	nodes := wire.Nodes{Nodes: []wire.Status{}}
	for _, n := range s.nodes {
		status := n.status
		status.ProbeAgeMillis, status.AnswerAgeMillis = ageOf(n.probed), ageOf(n.answered)
		nodes.Nodes = append(nodes.Nodes, status)
	}
	slices.SortFunc(nodes.Nodes, func(a, b wire.Status) int { return cmp.Compare(a.ID, b.ID) })
	return nodes
}

// ageOf is nil for what never was.
func ageOf(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	age := time.Since(t).Milliseconds()
	return &age
}

// emit queues an event.
func (s *service) emit(method string, params any) {
	if err := s.link.Notify(method, params); err != nil {
		s.log.Warn("event lost", "method", method, "err", err)
	}
}
