// SPDX-License-Identifier: Apache-2.0

package mdns

import (
	"strings"
	"testing"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
)

func TestAnInstanceNameSurvivesTheWire(t *testing.T) {
	serviceType, err := fqdn("_x._tcp", domain)
	require.NoError(t, err)
	for _, name := range []string{
		"alpha",
		"Kim's printer (2nd floor)",
		`say "hi" \ bye`,
		"a.b.c",
		"Zoë 雪 ☃",
		strings.Repeat("x", 63),
		strings.Repeat("é", 31) + "." + strings.Repeat("y", 63),
		"tab\tand\x00zero\xff",
		`\065`,
		"semi;colon@$",
	} {
		full, err := fqdn(name, "_x._tcp", domain)
		require.NoError(t, err, "%q", name)
		packed, err := pack(goodbye(&records{instance: full, serviceType: serviceType}))
		require.NoError(t, err, "%q", name)
		p, err := parseHeader(packed)
		require.NoError(t, err)
		s, err := p.records()
		require.NoError(t, err)
		require.Len(t, s.answers, 1)
		require.Equal(t, full, s.answers[0].(*dns.PTR).Ptr, "the form of what is sent is that of what arrives")
		got, ok := instanceOf(s.answers[0].(*dns.PTR).Ptr, serviceType)
		require.True(t, ok)
		require.Equal(t, name, got)
	}
}

func TestOnlyNamesThatDNSCanCarryArePublished(t *testing.T) {
	for _, tt := range []struct {
		name string
		ok   bool
	}{
		{".alpha.", true}, // dots at the ends do not count
		{"", false},
		{".", false},
		{"a..b", false},
		{strings.Repeat("x", 64), false},
		{strings.Repeat(strings.Repeat("x", 63)+".", 4), false}, // 255 bytes in all
	} {
		if _, err := fqdn(tt.name, "_x._tcp", domain); (err == nil) != tt.ok {
			t.Errorf("fqdn(%q): %v; want allowed %t", tt.name, err, tt.ok)
		}
	}
}

func TestAnInstanceIsWhatStandsBeforeItsType(t *testing.T) {
	for _, tt := range []struct {
		name, instance string
		ok             bool
	}{
		{"alpha._x._tcp.local.", "alpha", true},
		{"ALPHA._X._TCP.Local.", "ALPHA", true},
		{"a.b._x._tcp.local.", "a.b", true},
		{`a\.b._x._tcp.local.`, "a.b", true},
		{`a\032b._x._tcp.local.`, "a b", true},
		{`a\\._x._tcp.local.`, `a\`, true},
		{`a\._x._tcp.local.`, "", false}, // one label "a._x"
		{"_x._tcp.local.", "", false},
		{"._x._tcp.local.", "", false},
		{"alpha._y._tcp.local.", "", false},
		{"alpha_x._tcp.local.", "", false},
		{".", "", false},
		{"", "", false},
	} {
		instance, ok := instanceOf(tt.name, "_x._tcp.local.")
		if instance != tt.instance || ok != tt.ok {
			t.Errorf("instanceOf(%q) = %q, %t; want %q, %t", tt.name, instance, ok, tt.instance, tt.ok)
		}
	}
}

func TestTextIsUnescaped(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"plain", "plain"},
		{`a\"b\\c`, `a"b\c`},
		{`\195\171`, "ë"},
		{`\999`, "999"}, // no byte; the library never says so
		{`\1`, "1"},
		{`end\`, `end\`},
	} {
		if got := unescape(tt.in); got != tt.want {
			t.Errorf("unescape(%q) = %q; want %q", tt.in, got, tt.want)
		}
	}
}
