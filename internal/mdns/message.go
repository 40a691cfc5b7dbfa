// SPDX-License-Identifier: Apache-2.0

package mdns

import (
	"fmt"
	"net/netip"

	"github.com/miekg/dns"
)

// wantedBytes is what answers of several services are split at, so that they fit
// an Ethernet frame. One service alone may take more.
const wantedBytes = 1400

// answer is what one service contributes to a packet.
type answer struct {
	records *records
	kinds   kinds
}

// respond returns a response without content (DI-33).
func respond() *dns.Msg {
	m := &dns.Msg{Compress: true}
	m.Response, m.Authoritative = true, true
	return m
}

// announcement has all records of a service, to replace what others have cached.
func announcement(r *records, addrs []netip.Addr) *dns.Msg {
	m := respond()
	m.Answer = r.build(kindAll, addrs, recordTTL, true)
	return m
}

// goodbye withdraws a service (DI-41).
func goodbye(r *records) *dns.Msg {
	m := respond()
	m.Answer = r.build(kindPTR, nil, 0, false)
	return m
}

// probe asks who else has the instance name, and says what we will say (RFC 6762 section 8.1).
func probe(r *records) *dns.Msg {
	m := query(r.instance, dns.TypeANY)
	m.Ns = r.build(kindSRV|kindTXT, nil, recordTTL, false)
	return m
}

// query asks for multicast answers.
func query(name string, kind uint16) *dns.Msg {
	m := &dns.Msg{Compress: true}
	m.Question = []dns.Question{{Name: name, Qtype: kind, Qclass: dns.ClassINET}}
	return m
}

// reply answers with the records that were asked for, and adds those that will be
// asked for next. Addresses come behind all SRV records, because a reader may
// attach them only to hosts it has met in the packet (DI-34): where an address
// itself was asked for together with more, all are answers.
func reply(answers []answer, addrs []netip.Addr, ttl uint32) *dns.Msg {
	m := respond()
	var hosts []*records // whose addresses are due behind the rest
	var inAnswer bool    // where those belong
	seen := map[string]bool{}
	once := func(list *[]dns.RR, rrs []dns.RR) {
		if len(answers) == 1 {
			*list = append(*list, rrs...)
			return
		}
		for _, rr := range rrs {
			if key := rr.String(); !seen[key] {
				seen[key] = true
				*list = append(*list, rr)
			}
		}
	}
	for _, a := range answers {
		inAnswer = inAnswer || a.kinds&kindA != 0
	}
	for _, a := range answers {
		once(&m.Answer, a.records.build(a.kinds&^kindA, nil, ttl, false))
		if (a.kinds|extra(a.kinds))&kindA != 0 {
			hosts = append(hosts, a.records)
		}
	}
	rest := &m.Extra
	if inAnswer {
		rest = &m.Answer
	}
	for _, a := range answers {
		once(rest, a.records.build(extra(a.kinds)&^kindA, nil, ttl, false))
	}
	for _, r := range hosts {
		once(rest, r.build(kindA, addrs, ttl, false))
	}
	return m
}

// legacy turns a reply into one for a plain resolver: it repeats id and questions (RFC 6762 section 6.7).
func legacy(m *dns.Msg, id uint16, questions []dns.Question) *dns.Msg {
	m.Id, m.Question = id, questions
	return m
}

// pack encodes a packet. Names and texts were checked by newRecords, so that only
// the size can be wrong.
func pack(m *dns.Msg) ([]byte, error) {
	b, err := m.Pack()
	if err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	if len(b) > maxPacketBytes {
		return nil, fmt.Errorf("pack: packet has %d bytes, of at most %d", len(b), maxPacketBytes)
	}
	return b, nil
}

// split groups answers so that each group's reply is below wantedBytes, or is one answer.
func split(answers []answer, addrs []netip.Addr) [][]answer {
	if len(answers) < 2 {
		return [][]answer{answers}
	}
	var groups [][]answer
	size := 0
	for _, a := range answers {
		n := reply([]answer{a}, addrs, recordTTL).Len()
		if len(groups) == 0 || size+n > wantedBytes {
			groups, size = append(groups, nil), 0
		}
		size += n
		last := len(groups) - 1
		groups[last] = append(groups[last], a)
	}
	return groups
}
