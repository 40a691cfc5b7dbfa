// SPDX-License-Identifier: Apache-2.0

package mdns

import (
	"encoding/hex"
	"testing"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
)

func TestMalformedPacketsAreRefused(t *testing.T) {
	const name = "0161 00" // "a."
	for _, tt := range []struct {
		name, dump string
		ok         bool
	}{
		{"nothing", "", false},
		{"half a header", "0000 0000 0000", false},
		{"a header", "0000 0000 0000 0000 0000 0000", true},
		{"a question", "0000 0000 0001 0000 0000 0000" + name + "000c 0001", true},
		{"no question", "0000 0000 0001 0000 0000 0000", false},
		{"half a question", "0000 0000 0001 0000 0000 0000" + name + "000c", false},
		{"a reserved label", "0000 0000 0001 0000 0000 0000 8161 00 000c 0001", false},
		{"a pointer to itself", "0000 0000 0001 0000 0000 0000 c00c 000c 0001", false},
		{"an address", "0000 8400 0000 0001 0000 0000" + name + "0001 8001 00000078 0004 c0000201", true},
		{"a short address", "0000 8400 0000 0001 0000 0000" + name + "0001 8001 00000078 0004 c00002", false},
		{"a record without length", "0000 8400 0000 0001 0000 0000" + name + "0001 8001 00000078", false},
		{"a record with a bad name", "0000 8400 0000 0001 0000 0000 40" + name + "0001 8001 00000078 0000", false},
		{"a record's name without end", "0000 8400 0000 0001 0000 0000 0161", false},
		{"fewer records than said", "0000 8400 0000 ffff ffff ffff" + name + "0001 8001 00000078 0004 c0000201", false},
	} {
		b, err := hex.DecodeString(wire(tt.dump))
		require.NoError(t, err, tt.name)
		p, err := parseHeader(b)
		if err == nil {
			err = p.questions(func(question) {})
		}
		if err == nil {
			_, err = p.records()
		}
		require.Equal(t, tt.ok, err == nil, "%s: %v", tt.name, err)
	}
	_, err := parseHeader(make([]byte, maxPacketBytes+1))
	require.ErrorIs(t, err, errMalformed)
}

func TestRecordsOfNoUseAreSkipped(t *testing.T) {
	const name = "0161 00"
	dump := "0000 8400 0000 0005 0000 0000" +
		name + "001c 8001 00000078 0004 c0000201" + // AAAA that is too short
		name + "0001 8001 00000078 0000" + // A without content
		name + "0001 8003 00000078 0004 c0000201" + // of class CHAOS
		name + "002f 8001 00000078 0002 ffff" + // of an unknown type
		name + "0001 8001 00000078 0004 c0000201"
	b, err := hex.DecodeString(wire(dump))
	require.NoError(t, err)
	p, err := parseHeader(b)
	require.NoError(t, err)
	s, err := p.records()
	require.NoError(t, err)
	require.Len(t, s.answers, 1)
	require.Equal(t, "192.0.2.1", s.answers[0].(*dns.A).A.String())
	require.Equal(t, uint16(dns.ClassINET), s.answers[0].Header().Class)
}
