// SPDX-License-Identifier: Apache-2.0

package mdns_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
)

func wantsUnicast(m *dns.Msg) { m.Question[0].Qclass |= 1 << 15 }

// unicasts counts answers by the address that they went to.
func (w *world) unicasts() (to map[string]int, multicast int) {
	to = map[string]int{}
	for _, l := range w.answers() {
		if _, addr, found := strings.Cut(l.what, " to "); found {
			to[addr]++
		} else {
			multicast++
		}
	}
	return to, multicast
}

func TestAFloodFromOneFalseAddressIsHardlyReflected(t *testing.T) {
	for name, tt := range map[string]struct {
		victim string
		change func(*dns.Msg)
	}{
		"asks for unicast": {peer, wantsUnicast},
		"knows no mDNS":    {"192.0.2.7:40000", nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, _ := settled(t)
			for range 1000 { // for 10 s
				w.ask(tt.victim, tt.change)
				pass(10 * ms)
			}
			pass(2 * time.Second)
			to, multicast := w.unicasts()
			require.InDelta(t, 50, to[tt.victim], 5, name)
			require.LessOrEqual(t, multicast, 12, "%s: what is not answered by unicast has multicast's limit", name)
		})
	}
}

func TestAFloodFromManyFalseAddressesIsBoundedInAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := settled(t)
		for i := range 2000 { // for 10 s
			w.ask(fmt.Sprintf("192.0.2.%d:5353", 2+i%250), wantsUnicast)
			pass(5 * ms)
		}
		to, multicast := w.unicasts()
		sum := 0
		for _, n := range to {
			sum += n
		}
		require.InDelta(t, 250, sum, 25)
		require.InDelta(t, 10, multicast, 2)
		pass(2 * time.Second)
		w.sent()
		w.ask(peer, wantsUnicast)
		pass(10 * ms)
		to, _ = w.unicasts()
		require.Equal(t, map[string]int{peer: 1}, to, "a second later all is as before")
	})
}

// TestARecordThatWasNotMulticastForLongIsMulticast: see RFC 6762 section 5.4.
func TestARecordThatWasNotMulticastForLongIsMulticast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := settled(t) // announced 5 s ago
		pass(24 * time.Second)
		w.ask(peer, wantsUnicast)
		pass(time.Second)
		to, multicast := w.unicasts()
		require.Equal(t, map[string]int{peer: 1}, to)
		require.Zero(t, multicast)
		pass(2 * time.Second) // 32 s, the next announcement is due at 60 s
		w.ask(peer, wantsUnicast)
		pass(time.Second)
		to, multicast = w.unicasts()
		require.Empty(t, to)
		require.Equal(t, 1, multicast)
		w.ask(peer, wantsUnicast)
		pass(time.Second)
		to, _ = w.unicasts()
		require.Equal(t, map[string]int{peer: 1}, to, "everybody has heard it by now")
	})
}
