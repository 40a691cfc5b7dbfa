// SPDX-License-Identifier: Apache-2.0

package mdns

import (
	"fmt"
	"strings"

	"github.com/miekg/dns"
)

const (
	// domain is the only one that multicast DNS has.
	domain = "local"

	// enumeration is the name under which the types of all services are found (RFC 6763 section 9).
	enumeration = "_services._dns-sd._udp.local."

	maxLabelBytes = 63
)

// fqdn returns a name in the DNS library's presentation format, in the very form
// in which the library returns received names, so that both can be compared. The
// parts are in clear text; their dots separate labels, and those at their ends
// count for nothing (DI-9, DI-12).
func fqdn(parts ...string) (string, error) {
	var wire []byte
	for _, part := range parts {
		for label := range strings.SplitSeq(strings.Trim(part, "."), ".") {
			if label == "" || len(label) > maxLabelBytes {
				return "", fmt.Errorf("name %q: a label has 1 to %d bytes", part, maxLabelBytes)
			}
			wire = append(append(wire, byte(len(label))), label...)
		}
	}
	name, _, err := dns.UnpackDomainName(append(wire, 0), 0)
	if err != nil {
		return "", fmt.Errorf("name %q: %w", strings.Join(parts, "."), err)
	}
	return name, nil
}

// sameName compares names in presentation format. They are ASCII: other bytes are escaped.
func sameName(a, b string) bool { return strings.EqualFold(a, b) }

// canonical returns the form of a name that serves as a key.
func canonical(name string) string { return strings.ToLower(name) }

// instanceOf returns the clear instance name in front of a service type, both in
// presentation format, or false if name is no instance of that type (DI-12).
func instanceOf(name, serviceType string) (string, bool) {
	at := len(name) - len(serviceType) - 1
	if at < 1 || name[at] != '.' || !sameName(name[at+1:], serviceType) || escaped(name, at) {
		return "", false
	}
	instance := strings.Trim(unescape(name[:at]), ".")
	return instance, instance != ""
}

// escaped reports whether the byte at position at is preceded by a backslash that
// is no escaped one itself.
func escaped(s string, at int) bool {
	n := 0
	for n < at && s[at-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// unescape returns the clear text of what the DNS library presents: \X is X and
// \DDD is the byte of that decimal number.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	clear := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			clear = append(clear, s[i])
			continue
		}
		i++
		if b, ok := decimalByte(s[i:]); ok {
			clear = append(clear, b)
			i += 2
			continue
		}
		clear = append(clear, s[i])
	}
	return string(clear)
}

// decimalByte returns the byte that the first three characters stand for.
func decimalByte(s string) (byte, bool) {
	if len(s) < 3 {
		return 0, false
	}
	n := 0
	for _, c := range []byte(s[:3]) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return byte(n), n < 256
}

// escapeText is the inverse of unescape for the strings of a TXT record, of which
// the DNS library interprets backslashes only.
func escapeText(s string) string { return strings.ReplaceAll(s, `\`, `\\`) }
