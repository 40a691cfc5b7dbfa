// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPacketsAreCountedByWhatTheyAreFor(t *testing.T) {
	const ethernet = "ffffffffffff 020000000001 "
	// Version and length, type of service, total length; id, flags; TTL, protocol, checksum; source; destination.
	ip := func(protocol, source string) string {
		return "0800 45000028 00000000 ff" + protocol + "0000 " + source + " e00000fb "
	}
	c := newTraffic(netip.MustParseAddr("10.77.0.1"))
	for _, frame := range []string{
		ethernet + ip("11", "0a4d0001") + "14e914e9 00000000", // the one node's multicast DNS
		ethernet + ip("11", "0a4d0101") + "14e914e9 00000000", // of another
		ethernet + ip("11", "0a4d0101") + "14e90035 00000000", // no multicast DNS
		ethernet + ip("06", "0a4d0001") + "c00037ee 00000000", // to a node-info
		ethernet + ip("06", "0a4d0101") + "37eec000 00000000", // from it
		ethernet + "0806 0001080006040001",                    // ARP
		ethernet + "0800 4f",                                  // cut off
	} {
		b, err := hex.DecodeString(strings.ReplaceAll(frame, " ", ""))
		require.NoError(t, err)
		c.count(b)
	}
	require.Equal(t, 7, c.all)
	require.Equal(t, 1, c.byTheAlone)
	require.Equal(t, map[netip.Addr]int{netip.MustParseAddr("10.77.1.1"): 1}, c.bySender)
	require.Equal(t, 2, c.info)
}

func TestOnlyAListThatIsOtherwiseTheSameIsExcused(t *testing.T) {
	n := &news{changed: make(chan struct{})}
	const list = `{"jsonrpc":"2.0","method":"discovery:nodes-changed","params":[{"name":"a","lastSeen":%}]}`
	say := func(line, seen string) { n.take([]byte(strings.ReplaceAll(line, "%", seen))) }
	say(list, "1")
	begin := time.Now()
	say(list, "2")
	say(`{"jsonrpc":"2.0","id":5,"result":{}}`, "") // an answer
	excused, other := n.judge(begin)
	require.Equal(t, 1, excused)
	require.Empty(t, other)
	say(strings.Replace(list, `"a"`, `"b"`, 1), "2")
	say(`{"jsonrpc":"2.0","method":"errors:update","params":[]}`, "")
	say(strings.Replace(list, `"a"`, `"b"`, 1), "3")
	excused, other = n.judge(begin)
	require.Equal(t, 2, excused)
	require.Len(t, other, 2)
	require.Len(t, n.since(begin), 4)
}

func TestTheBusiestSecondIsTheMostOfAny(t *testing.T) {
	at := func(ms ...int) (list []time.Time) {
		for _, m := range ms {
			list = append(list, time.Unix(0, 0).Add(time.Duration(m)*time.Millisecond))
		}
		return list
	}
	require.Zero(t, busiestSecond(nil))
	require.Equal(t, 1, busiestSecond(at(0, 1000, 2000)))
	require.Equal(t, 3, busiestSecond(at(0, 900, 1000, 1899, 5000)))
}
