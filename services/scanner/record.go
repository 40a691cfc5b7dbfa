// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"nvpair/shared/discovery"
)

const (
	serviceType = "_nvpair-node._tcp"
	// srvPort stands in every SRV record and means nothing: ports are in TXT
	// (DI-11).
	srvPort = discovery.PortNodeInfo
	// maxTXTBytes bounds one string of a TXT record (DI-16).
	maxTXTBytes = 255
	// maxRemoteServices bounds what another node's record may name.
	maxRemoteServices = 32
	// maxLabel bounds what other nodes call themselves and each other.
	maxLabel = 255
)

// record is what a node says of itself in its TXT strings (DI-9 to DI-19). All of
// it is a claim.
type record struct {
	hostUUID    string
	clusterUUID string
	ips         []string // ranked, at most maxAddresses; the first is `ip`
	services    map[string]discovery.Service
}

// serviceOrder is the order of the known codes in a record.
func serviceOrder() []string {
	return []string{
		discovery.ServiceNodeInfo, "ol", "lm", discovery.ServiceErrors, discovery.ServiceWorkload,
		discovery.ServiceCluster, discovery.ServiceEngines, discovery.ServiceControl,
	}
}

// txt returns the strings of the record, always in one order. One that is too long
// is left out.
func (r record) txt(log *slog.Logger) []string {
	out := []string{"v=1"}
	add := func(key, value string) {
		if s := key + "=" + value; len(s) <= maxTXTBytes {
			out = append(out, s)
		} else {
			log.Warn("key left out of the node record: it is too long", "key", key, "bytes", len(s))
		}
	}
	if r.hostUUID != "" {
		add("uuid", r.hostUUID)
	}
	if r.clusterUUID != "" {
		add("cluster-uuid", r.clusterUUID)
	}
	if len(r.ips) > 0 {
		add("ip", r.ips[0])
	}
	if len(r.ips) > 1 {
		add("ips", strings.Join(r.ips, ","))
	}
	rest := maps.Clone(r.services)
	for _, code := range serviceOrder() {
		if s, ok := rest[code]; ok {
			add(code, strconv.Itoa(s.Port))
			delete(rest, code)
		}
	}
	for _, code := range slices.Sorted(maps.Keys(rest)) {
		add(code, strconv.Itoa(rest[code].Port))
	}
	return out
}

// parseRecord reads the strings of a record. Nothing fails the whole of it: what
// makes no sense is skipped (DI-15).
func parseRecord(txt []string) record {
	r := record{services: make(map[string]discovery.Service)}
	var ip string
	for _, s := range txt {
		key, value, found := strings.Cut(s, "=")
		if !found {
			continue
		}
		switch key {
		case "v":
		case "uuid":
			r.hostUUID = label(value)
		case "cluster-uuid":
			r.clusterUUID = label(value)
		case "ip":
			ip = value
		case "ips":
			r.ips = strings.Split(value, ",")
		default:
			port, err := strconv.Atoi(value)
			if err == nil && isServiceCode(key) && port >= 1 && port <= 65535 && len(r.services) < maxRemoteServices {
				r.services[key] = discovery.Service{Port: port}
			}
		}
	}
	r.ips = literals(append([]string{ip}, r.ips...))
	return r
}

// literals keeps the first few of what is an address, each once.
func literals(texts []string) []string {
	var out []string
	for _, t := range texts {
		a, err := netip.ParseAddr(strings.TrimSpace(t))
		if err != nil || !reachable(a) {
			continue
		}
		if s := a.Unmap().String(); len(out) < maxAddresses && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// reachable reports whether another node can be at an address: no record may make
// this node ask itself, or everybody.
func reachable(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsGlobalUnicast() && a.Zone() == ""
}

// label bounds a foreign text. Control characters are left out: they are no part of
// a name, and each would be six bytes in what is passed on.
func label(s string) string {
	if len(s) > maxLabel {
		return ""
	}
	return plain(s)
}

func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// isServiceCode reports whether a key of a record may stand for a service.
func isServiceCode(key string) bool {
	return key != "" && len(key) <= maxServiceBytes && !strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`"\<>&`, c) })
}
