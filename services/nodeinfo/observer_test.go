// SPDX-License-Identifier: Apache-2.0

package nodeinfo

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// endpoints is a connection of which only the addresses are asked.
type endpoints struct {
	net.Conn
	local, remote string
}

func (e endpoints) LocalAddr() net.Addr  { return tcpAddr(e.local) }
func (e endpoints) RemoteAddr() net.Addr { return tcpAddr(e.remote) }

func tcpAddr(s string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(s)) }

// TestOnlyPathsOfPeersAreObserved: see NI-23.
func TestOnlyPathsOfPeersAreObserved(t *testing.T) {
	for _, tt := range []struct {
		local, remote string
		want          []string
	}{
		{"10.0.0.4:14318", "10.0.0.5:50000", []string{"10.0.0.4"}},
		{"[::ffff:10.0.0.4]:14318", "[::ffff:10.0.0.5]:50000", []string{"10.0.0.4"}},
		{"[fd00::4]:14318", "[fd00::5]:50000", []string{"fd00::4"}},
		{"[fe80::4%eth0]:14318", "[fe80::5%eth0]:50000", []string{"fe80::4"}},
		{"10.0.0.4:14318", "127.0.0.1:50000", []string{}},
		{"10.0.0.4:14318", "[::ffff:127.0.0.1]:50000", []string{}},
		{"127.0.0.1:14318", "10.0.0.5:50000", []string{}},
		{"[::1]:14318", "[::1]:50000", []string{}},
		{"0.0.0.0:14318", "10.0.0.5:50000", []string{}},
		{"[::]:14318", "[fd00::5]:50000", []string{}},
	} {
		o := newObserver()
		o.see(endpoints{local: tt.local, remote: tt.remote})
		require.Equal(t, tt.want, o.addresses(), tt)
	}
	o := newObserver()
	near, far := net.Pipe()
	o.see(near)
	require.NoError(t, near.Close())
	require.NoError(t, far.Close())
	require.Empty(t, o.addresses())
}

// TestObservationsExpire: see NI-24.
func TestObservationsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newObserver()
		see := func(local string) { o.see(endpoints{local: local + ":14318", remote: "10.9.9.9:1"}) }
		see("10.0.0.9")
		see("10.0.0.10")
		<-time.After(observedFor)
		require.Equal(t, []string{"10.0.0.10", "10.0.0.9"}, o.addresses(), "sorted as text")
		see("10.0.0.9")
		<-time.After(time.Second)
		require.Equal(t, []string{"10.0.0.9"}, o.addresses())
		<-time.After(observedFor)
		require.Equal(t, []string{}, o.addresses(), "never nil")
	})
}

func TestObservationsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newObserver()
		for i := range 2 * maxObserved {
			o.see(endpoints{local: fmt.Sprintf("[fd00::%x]:1", i+1), remote: "[fd01::1]:1"})
		}
		require.Len(t, o.addresses(), maxObserved)
		<-time.After(observedFor + time.Second)
		o.see(endpoints{local: "10.0.0.1:1", remote: "10.0.0.2:1"})
		require.Equal(t, []string{"10.0.0.1"}, o.addresses())
	})
}
