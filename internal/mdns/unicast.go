// SPDX-License-Identifier: Apache-2.0

package mdns

import (
	"net/netip"
	"time"
)

// Unicast packets on one link in a second, to one address and to all together. A
// question's source address is whatever its sender wrote there, and an answer is
// larger than the question.
const (
	maxUnicastTo = 5
	maxUnicast   = 25
)

// recently is how old the last multicast of a record may be where a question asks
// for a unicast answer: a quarter of its TTL. All others need to hear of an older
// one as well (RFC 6762 section 5.4).
const recently = recordTTL * time.Second / 4

// unicasts counts what was sent to single addresses in the running second. The
// zero value is ready; it never holds more than maxUnicast addresses.
type unicasts struct {
	since time.Time
	sent  int
	to    map[netip.Addr]int
}

// take reports whether so many more packets may be sent to an address, and counts
// them then.
func (u *unicasts) take(to netip.Addr, packets int, now time.Time) bool {
	if now.Sub(u.since) >= oneSecond {
		*u = unicasts{since: now, to: map[netip.Addr]int{}}
	}
	if u.sent+packets > maxUnicast || u.to[to]+packets > maxUnicastTo {
		return false
	}
	u.sent += packets
	u.to[to] += packets
	return true
}

// multicastRecently reports whether that is true of all these records.
func (l *link) multicastRecently(e *entry, k kinds, now time.Time) bool {
	all := true
	k.each(func(kind kinds) {
		last, ok := l.lastSent[keyOf(e.records, kind)]
		all = all && ok && now.Sub(last) < recently
	})
	return all
}
