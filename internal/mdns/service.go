// SPDX-License-Identifier: Apache-2.0

package mdns

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

const (
	recordTTL = 120 // seconds; also of what is announced every 60 s (DI-36)
	legacyTTL = 10  // seconds, the most in answers to plain resolvers (RFC 6762 section 6.7)

	maxStringBytes = 255  // of a TXT record (RFC 6763 section 6.1)
	maxTXTBytes    = 1300 // of all its strings (RFC 6763 section 6.2)

	// maxAddrs bounds the A records of one packet. An interface with more has the rest left out.
	maxAddrs = 16
)

// Service describes a service instance. All names are clear text and case is kept.
type Service struct {
	// Instance is its name for people, such as "Kim's printer (2nd floor)". Dots
	// separate labels, of at most 63 bytes each; those at the ends are ignored.
	Instance string
	// Type is what it speaks and over which transport: "_http._tcp".
	Type string
	// Host is the name of the machine, without "local"; empty is Instance. Its
	// addresses are those of the interface that is spoken on.
	Host string
	Port uint16
	// TXT are its attributes, "key=value" by convention, at most 255 bytes each
	// and 1,300 together. Their order is kept.
	TXT []string
}

// kinds is a set of the records of a service.
type kinds uint8

const (
	kindPTR kinds = 1 << iota // from the type to the instance
	kindSRV
	kindTXT
	kindA
	kindType // from the enumeration of types to the type

	kindAll = kindPTR | kindSRV | kindTXT | kindA // what makes up an announcement, in this order (DI-34)
)

// each calls f for every kind in the set.
func (k kinds) each(f func(kinds)) {
	for one := kindPTR; one <= kindType; one <<= 1 {
		if k&one != 0 {
			f(one)
		}
	}
}

// records is a Service in terms of DNS. It does not change.
type records struct {
	instance, serviceType, host string    // in presentation format
	keys                        [3]string // the same, canonical
	port                        uint16
	txt                         []string // escaped; never empty
}

// newRecords checks a service. Its TXT is copied.
func newRecords(s Service) (*records, error) {
	serviceType, err := fqdn(s.Type, domain)
	if err != nil {
		return nil, err
	}
	instance, err := fqdn(s.Instance, s.Type, domain)
	if err != nil {
		return nil, err
	}
	host, err := fqdn(orElse(s.Host, s.Instance), domain)
	if err != nil {
		return nil, err
	}
	txt, err := recordTXT(s.TXT)
	if err != nil {
		return nil, err
	}
	keys := [...]string{canonical(instance), canonical(serviceType), canonical(host)}
	return &records{instance: instance, serviceType: serviceType, host: host, keys: keys, port: s.Port, txt: txt}, nil
}

// recordTXT checks and copies the strings of a TXT record. None are one that is empty (DI-38).
func recordTXT(list []string) ([]string, error) {
	if len(list) == 0 {
		return []string{""}, nil
	}
	total := 0
	txt := make([]string, len(list))
	for i, s := range list {
		if len(s) > maxStringBytes {
			key, _, _ := strings.Cut(s, "=")
			return nil, fmt.Errorf("TXT string %.40q has %d bytes, of at most %d", key, len(s), maxStringBytes)
		}
		total += 1 + len(s)
		txt[i] = escapeText(s)
	}
	if total > maxTXTBytes {
		return nil, fmt.Errorf("TXT record has %d bytes, of at most %d", total, maxTXTBytes)
	}
	return txt, nil
}

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// asked returns the records that a question asks for (DI-33).
func (r *records) asked(q question) kinds {
	is := func(kind uint16) bool { return q.kind == kind || q.kind == dns.TypeANY }
	switch {
	case is(dns.TypePTR) && sameName(q.name, r.serviceType):
		return kindPTR
	case is(dns.TypePTR) && sameName(q.name, enumeration):
		return kindType
	case (is(dns.TypeSRV) || q.kind == dns.TypeTXT) && sameName(q.name, r.instance):
		return kindSRV | kindTXT
	case is(dns.TypeA) && sameName(q.name, r.host):
		return kindA
	}
	return 0
}

// extra returns the records that a reader of those in k will need next.
func extra(k kinds) kinds {
	switch {
	case k&kindPTR != 0:
		return (kindSRV | kindTXT | kindA) &^ k
	case k&kindSRV != 0:
		return kindA &^ k
	}
	return 0
}

// is reports whether rr is our record of one kind, whatever its TTL. Addresses are never compared.
func (r *records) is(kind kinds, rr dns.RR) bool {
	switch rr := rr.(type) {
	case *dns.PTR:
		return kind == kindPTR && sameName(rr.Hdr.Name, r.serviceType) && sameName(rr.Ptr, r.instance) ||
			kind == kindType && sameName(rr.Hdr.Name, enumeration) && sameName(rr.Ptr, r.serviceType)
	case *dns.SRV:
		return kind == kindSRV && sameName(rr.Hdr.Name, r.instance) && rr.Port == r.port && sameName(rr.Target, r.host)
	case *dns.TXT:
		return kind == kindTXT && sameName(rr.Hdr.Name, r.instance) && sameText(rr.Txt, r.txt)
	}
	return false
}

// sameText compares the strings of TXT records, which may be escaped differently.
func sameText(a, b []string) bool {
	return slices.EqualFunc(a, b, func(a, b string) bool { return unescape(a) == unescape(b) })
}

// conflicts reports whether rr claims our instance name with other contents.
func (r *records) conflicts(rr dns.RR) bool {
	if rr.Header().Ttl == 0 || !sameName(rr.Header().Name, r.instance) {
		return false
	}
	switch rr.(type) {
	case *dns.SRV:
		return !r.is(kindSRV, rr)
	case *dns.TXT:
		return !r.is(kindTXT, rr)
	}
	return false
}

// build returns the records of a set in the order of DI-34, for an interface with these addresses.
func (r *records) build(k kinds, addrs []netip.Addr, ttl uint32, flush bool) []dns.RR {
	class := uint16(dns.ClassINET)
	unique := class
	if flush {
		unique |= topBit
	}
	var list []dns.RR
	k.each(func(one kinds) {
		switch one {
		case kindPTR:
			h := dns.RR_Header{Name: r.serviceType, Rrtype: dns.TypePTR, Class: class, Ttl: ttl}
			list = append(list, &dns.PTR{Hdr: h, Ptr: r.instance})
		case kindType:
			h := dns.RR_Header{Name: enumeration, Rrtype: dns.TypePTR, Class: class, Ttl: ttl}
			list = append(list, &dns.PTR{Hdr: h, Ptr: r.serviceType})
		case kindSRV:
			h := dns.RR_Header{Name: r.instance, Rrtype: dns.TypeSRV, Class: unique, Ttl: ttl}
			list = append(list, &dns.SRV{Hdr: h, Port: r.port, Target: r.host})
		case kindTXT:
			h := dns.RR_Header{Name: r.instance, Rrtype: dns.TypeTXT, Class: unique, Ttl: ttl}
			list = append(list, &dns.TXT{Hdr: h, Txt: r.txt})
		case kindA:
			for _, addr := range addrs[:min(len(addrs), maxAddrs)] {
				h := dns.RR_Header{Name: r.host, Rrtype: dns.TypeA, Class: unique, Ttl: ttl}
				list = append(list, &dns.A{Hdr: h, A: addr.AsSlice()})
			}
		}
	})
	return list
}
