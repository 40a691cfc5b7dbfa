// SPDX-License-Identifier: Apache-2.0

package mdns

import (
	"encoding/binary"
	"errors"

	"github.com/miekg/dns"
)

const (
	// maxPacketBytes is the largest packet that is looked at (RFC 6762 section 17).
	maxPacketBytes = 9000

	headerBytes   = 12
	questionBytes = 4  // type and class
	recordBytes   = 10 // type, class, TTL and length

	// topBit is that of a class: in a question it asks for a unicast answer, in a
	// record it tells to flush the cache (RFC 6762 sections 18.12, 18.13).
	topBit = 1 << 15

	flagResponse  = 1 << 15
	flagTruncated = 1 << 9
	maskOpcode    = 0xf << 11
	maskRcode     = 0xf
)

var (
	errMalformed = errors.New("malformed packet")
	errNotOurs   = errors.New("operation or status is not zero") // RFC 6762 sections 18.3, 18.11
)

// question is one of a query, of class IN.
type question struct {
	name    string // in presentation format
	kind    uint16 // the type of record
	unicast bool   // asks for a unicast answer
}

// parser walks over a packet once: header, questions, records. It decodes by
// itself what frames the records, so that one that the DNS library refuses, or of
// a type that nobody here needs, spoils nothing and costs little.
type parser struct {
	b   []byte
	off int

	id        uint16
	response  bool
	truncated bool
	count     [4]int // questions, answers, authorities, additionals
}

// parseHeader starts on a packet.
func parseHeader(b []byte) (parser, error) {
	if len(b) < headerBytes || len(b) > maxPacketBytes {
		return parser{}, errMalformed
	}
	flags := binary.BigEndian.Uint16(b[2:])
	p := parser{b: b, off: headerBytes, id: binary.BigEndian.Uint16(b)}
	p.response, p.truncated = flags&flagResponse != 0, flags&flagTruncated != 0
	for i := range p.count {
		p.count[i] = int(binary.BigEndian.Uint16(b[4+2*i:]))
	}
	if flags&(maskOpcode|maskRcode) != 0 {
		return p, errNotOurs
	}
	return p, nil
}

// questions calls f for each question of class IN.
func (p *parser) questions(f func(question)) error {
	for range p.count[0] {
		name, off, err := dns.UnpackDomainName(p.b, p.off)
		if err != nil || off+questionBytes > len(p.b) {
			return errMalformed
		}
		kind, class := binary.BigEndian.Uint16(p.b[off:]), binary.BigEndian.Uint16(p.b[off+2:])
		p.off = off + questionBytes
		if c := class &^ topBit; c == dns.ClassINET || c == dns.ClassANY {
			f(question{name: name, kind: kind, unicast: class&topBit != 0})
		}
	}
	return nil
}

// sections are the records of a packet of which this package knows the type. The
// cache-flush bit is cleared.
type sections struct{ answers, authorities, additionals []dns.RR }

// records returns all records. The questions must have been walked over.
func (p *parser) records() (sections, error) {
	var s sections
	for i, list := range []*[]dns.RR{&s.answers, &s.authorities, &s.additionals} {
		for range p.count[1+i] {
			rr, err := p.record()
			if err != nil {
				return sections{}, err
			}
			if rr != nil {
				*list = append(*list, rr)
			}
		}
	}
	return s, nil
}

// record returns the next record, or nil for one to skip.
func (p *parser) record() (dns.RR, error) {
	start := p.off
	off, err := skipName(p.b, p.off)
	if err != nil || off+recordBytes > len(p.b) {
		return nil, errMalformed
	}
	h := dns.RR_Header{
		Rrtype:   binary.BigEndian.Uint16(p.b[off:]),
		Class:    binary.BigEndian.Uint16(p.b[off+2:]) &^ topBit,
		Ttl:      binary.BigEndian.Uint32(p.b[off+4:]),
		Rdlength: binary.BigEndian.Uint16(p.b[off+8:]),
	}
	off += recordBytes
	p.off = off + int(h.Rdlength)
	if p.off > len(p.b) {
		return nil, errMalformed
	}
	if h.Class != dns.ClassINET || !known(h.Rrtype) || h.Rdlength == 0 {
		return nil, nil
	}
	if h.Name, _, err = dns.UnpackDomainName(p.b, start); err != nil {
		return nil, nil
	}
	rr, end, err := dns.UnpackRRWithHeader(h, p.b[:p.off], off)
	if err != nil || end != p.off {
		return nil, nil
	}
	return rr, nil
}

// known reports whether records of that type mean anything here.
func known(kind uint16) bool {
	switch kind {
	case dns.TypePTR, dns.TypeSRV, dns.TypeTXT, dns.TypeA, dns.TypeAAAA:
		return true
	}
	return false
}

// skipName returns the position behind the name at off, which need not be a valid one.
func skipName(b []byte, off int) (int, error) {
	for off < len(b) {
		switch n := int(b[off]); {
		case n == 0:
			return off + 1, nil
		case n >= 0xc0: // a pointer ends a name
			return off + 2, nil
		case n > maxLabelBytes:
			return 0, errMalformed
		default:
			off += 1 + n
		}
	}
	return 0, errMalformed
}
