// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/shared/discovery"
)

// full is a record with everything, as DI-12's table orders it.
func full() record {
	return record{
		hostUUID: uuid, clusterUUID: other, ips: []string{"192.168.1.2", "10.0.0.2"},
		services: map[string]discovery.Service{
			"zz": {Port: 9}, "ec": {Port: 14323}, "ni": {Port: 14318}, "ol": {Port: 11434}, "aa": {Port: 8}, "er": {Port: 14319},
		},
	}
}

func TestTheRecordHasOneOrder(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	want := "v=1 uuid=" + uuid + " cluster-uuid=" + other + " ip=192.168.1.2 ips=192.168.1.2,10.0.0.2 ni=14318 ol=11434 er=14319 ec=14323 aa=8 zz=9"
	for range 20 {
		require.Equal(t, want, strings.Join(full().txt(quiet), " "))
	}
	require.Equal(t, full(), parseRecord(full().txt(quiet)), "DI-19")
	require.Equal(t, []string{"v=1"}, record{}.txt(quiet))
	one := record{ips: []string{"10.0.0.1"}}
	require.Equal(t, []string{"v=1", "ip=10.0.0.1"}, one.txt(quiet))
	long := record{services: map[string]discovery.Service{strings.Repeat("x", 300): {Port: 1}, "ni": {Port: 2}}}
	require.Equal(t, []string{"v=1", "ni=2"}, long.txt(quiet), "DI-16")
}

func TestNothingFailsAWholeRecord(t *testing.T) { // DI-15
	for _, tt := range []struct {
		in   string
		want record
	}{
		{"", record{}},
		{"junk|=|uuid", record{services: map[string]discovery.Service{}}},
		{"v=99|uuid=a|uuid=b", record{hostUUID: "b"}},
		{"ip=10.0.0.1|ips= 10.0.0.2 ,,x,10.0.0.1,10.0.0.3,10.0.0.4,10.0.0.5", record{ips: []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"}}},
		{"ip=nonsense|ips=10.0.0.2", record{ips: []string{"10.0.0.2"}}},
		{"ni=0|ol=65536|lm=x|er=-1|wl=14320|later=7", record{services: map[string]discovery.Service{"wl": {Port: 14320}, "later": {Port: 7}}}},
		{"uuid=" + strings.Repeat("u", 300), record{}},
	} {
		got := parseRecord(strings.Split(tt.in, "|"))
		if tt.want.services == nil {
			tt.want.services = map[string]discovery.Service{}
		}
		require.Equal(t, tt.want, got, tt.in)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add("v=1\x00uuid=a\x00ips=1.2.3.4,5\x00ni=1")
	f.Fuzz(func(t *testing.T, text string) {
		r := parseRecord(strings.Split(text, "\x00"))
		require.LessOrEqual(t, len(r.ips), maxAddresses)
		require.LessOrEqual(t, len(r.services), maxRemoteServices)
		again := parseRecord(r.txt(slog.New(slog.DiscardHandler)))
		require.Equal(t, r.hostUUID, again.hostUUID)
		require.Equal(t, r.ips, again.ips)
	})
}
