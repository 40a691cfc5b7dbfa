// SPDX-License-Identifier: Apache-2.0

package mdns

import (
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"
)

// Sighting is what one packet says about one service instance. It belongs to the
// function that it is given to.
type Sighting struct {
	Instance string // in clear text, without the service type

	Host  string       // target in clear text, without a final dot: "alpha.local"
	Port  uint16       // from SRV
	TXT   []string     // in the record's order, in clear text; nil if the packet has no TXT record
	Addrs []netip.Addr // A and AAAA records of Host in the packet's order, without IPv6 link-local ones

	Interface int           // index of the receiving interface
	Source    netip.Addr    // sender of the packet
	TTL       time.Duration // of the SRV record

	// Goodbye means that the instance is being withdrawn. Then the fields
	// from Host to Addrs are empty and TTL is 0.
	Goodbye bool
}

// resolve returns the sightings of a response, for a service type in presentation
// format. It looks at the packet alone: PTR or SRV names an instance, which needs
// an SRV and an address; a record with a TTL of 0 counts for nothing, except that a
// PTR says goodbye (DI-46). The order is that of the first mention.
func resolve(s sections, serviceType string) []Sighting {
	found := collect(s, serviceType)
	if len(found.order) == 0 {
		return nil
	}
	addrs := addresses(s)
	var list []Sighting
	for _, key := range found.order {
		in := found.instances[key]
		if in.goodbye {
			list = append(list, Sighting{Instance: in.name, Goodbye: true})
			continue
		}
		if in.srv == nil || len(addrs[canonical(in.srv.Target)]) == 0 {
			continue
		}
		list = append(list, Sighting{
			Instance: in.name,
			Host:     trimDot(unescape(in.srv.Target)),
			Port:     in.srv.Port,
			TXT:      clearTXT(in.txt),
			Addrs:    slices.Clone(addrs[canonical(in.srv.Target)]),
			TTL:      time.Duration(in.srv.Hdr.Ttl) * time.Second,
		})
	}
	return list
}

// mention is what a packet says about an instance; later records win.
type mention struct {
	name    string
	srv     *dns.SRV
	txt     *dns.TXT
	goodbye bool
}

// mentions are those of a packet.
type mentions struct {
	instances map[string]*mention // by canonical name
	order     []string            // of first mention
}

func collect(s sections, serviceType string) mentions {
	found := mentions{instances: map[string]*mention{}}
	for _, list := range [][]dns.RR{s.answers, s.additionals} {
		for _, rr := range list {
			switch rr := rr.(type) {
			case *dns.PTR:
				if !sameName(rr.Hdr.Name, serviceType) {
					continue
				}
				if in := found.named(rr.Ptr, serviceType); in != nil && rr.Hdr.Ttl == 0 {
					in.goodbye = true
				}
			case *dns.SRV:
				if rr.Hdr.Ttl == 0 {
					continue
				}
				if in := found.named(rr.Hdr.Name, serviceType); in != nil {
					in.srv = rr
				}
			case *dns.TXT:
				if rr.Hdr.Ttl == 0 {
					continue
				}
				if in := found.named(rr.Hdr.Name, serviceType); in != nil {
					in.txt = rr
				}
			}
		}
	}
	return found
}

// named returns the mention of an instance, or nil if it is of another type.
func (m *mentions) named(name, serviceType string) *mention {
	instance, ok := instanceOf(name, serviceType)
	if !ok {
		return nil
	}
	key := canonical(name)
	in := m.instances[key]
	if in == nil {
		in = &mention{name: instance}
		m.instances[key] = in
		m.order = append(m.order, key)
	}
	return in
}

// addresses returns the addresses of each host, by its canonical name.
func addresses(s sections) map[string][]netip.Addr {
	found := map[string][]netip.Addr{}
	for _, list := range [][]dns.RR{s.answers, s.additionals} {
		for _, rr := range list {
			var addr netip.Addr
			switch rr := rr.(type) {
			case *dns.A:
				addr, _ = netip.AddrFromSlice(rr.A)
			case *dns.AAAA:
				addr, _ = netip.AddrFromSlice(rr.AAAA)
			}
			addr = addr.Unmap()
			if !addr.IsValid() || rr.Header().Ttl == 0 || addr.Is6() && addr.IsLinkLocalUnicast() { // DI-30
				continue
			}
			host := canonical(rr.Header().Name)
			if !slices.Contains(found[host], addr) {
				found[host] = append(found[host], addr)
			}
		}
	}
	return found
}

func clearTXT(rr *dns.TXT) []string {
	if rr == nil {
		return nil
	}
	if len(rr.Txt) == 1 && rr.Txt[0] == "" { // how an empty one is sent (RFC 6763 section 6.1)
		return []string{}
	}
	list := make([]string, len(rr.Txt))
	for i, s := range rr.Txt {
		list[i] = unescape(s)
	}
	return list
}

func trimDot(name string) string {
	if n := len(name); n > 0 && name[n-1] == '.' {
		return name[:n-1]
	}
	return name
}
