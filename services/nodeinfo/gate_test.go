// SPDX-License-Identifier: Apache-2.0

package nodeinfo

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	here  = netip.MustParsePrefix("192.0.2.1/32")
	there = netip.MustParsePrefix("192.0.2.2/32")
	away  = netip.MustParsePrefix("192.0.2.3/32")
)

// pipes returns connections that last until the end of the test.
func pipes(t *testing.T, n int) []net.Conn {
	t.Helper()
	conns := make([]net.Conn, n)
	for i := range conns {
		near, far := net.Pipe()
		t.Cleanup(func() { _, _ = near.Close(), far.Close() })
		conns[i] = near
	}
	return conns
}

// counts returns how many connections each source has.
func counts(g *gate) map[netip.Prefix]int {
	n := map[netip.Prefix]int{}
	for from, s := range g.sources {
		n[from] = s.len()
	}
	return n
}

func isClosed(conn net.Conn) bool {
	_ = conn.SetReadDeadline(time.Now().Add(-time.Second))
	_, err := conn.Read(make([]byte, 1))
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

func TestTheGateTakesTheIdlestThenTheOverdueThenTheSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(nil)
		conns := pipes(t, maxPerSource)
		for _, conn := range conns {
			g.admit(conn, here)
			<-time.After(time.Microsecond)
		}
		g.moved(conns[0], http.StateActive)
		g.moved(conns[7], http.StateIdle)
		<-time.After(graceOfConn / 4)
		g.moved(conns[3], http.StateIdle)
		for _, want := range []int{7, 3, 1} { // idle ones, then the oldest that has said nothing
			require.False(t, isClosed(conns[want]))
			g.admit(pipes(t, 1)[0], here)
			require.True(t, isClosed(conns[want]), want)
		}
		<-time.After(2 * graceOfConn)
		for i, conn := range conns {
			if i != 5 {
				g.moved(conn, http.StateActive)
			}
		}
		late := pipes(t, 5)
		for _, conn := range late {
			g.admit(conn, here) // in the places of 5 and of those admitted above, which are all overdue
		}
		require.True(t, isClosed(conns[5]))
		require.False(t, isClosed(conns[0]))
		g.moved(conns[5], http.StateClosed)
		require.Len(t, g.conns, maxPerSource, "it was out already")
		g.moved(conns[9], http.StateClosed)
		require.Len(t, g.conns, maxPerSource-1)
		require.Equal(t, map[netip.Prefix]int{here: maxPerSource - 1}, counts(g))
	})
}

func TestASourceTakesNoPlacesOfOthersButTheLargestGivesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(nil)
		honest := pipes(t, 1)[0]
		g.admit(honest, away)
		g.moved(honest, http.StateIdle)
		for _, conn := range pipes(t, 2*maxPerSource) {
			g.admit(conn, here)
		}
		require.Equal(t, map[netip.Prefix]int{here: maxPerSource, away: 1}, counts(g))
		for _, conn := range pipes(t, maxPerSource-1) {
			g.admit(conn, there)
		}
		require.Len(t, g.conns, maxConns)
		g.admit(pipes(t, 1)[0], away)
		require.Equal(t, map[netip.Prefix]int{here: maxPerSource - 1, there: maxPerSource - 1, away: 2}, counts(g))
		require.False(t, isClosed(honest))
	})
}

func TestASubnetOfIPv6IsOneSource(t *testing.T) {
	for from, want := range map[string]string{
		"192.0.2.1": "192.0.2.1/32", "::ffff:192.0.2.1": "192.0.2.1/32", "2001:db8::1": "2001:db8::/64", "fe80::1%eth0": "fe80::/64",
	} {
		conn := fromConn{remote: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 1))}
		require.Equal(t, want, sourceOf(conn).String(), from)
	}
}

// fromConn is a connection from somewhere.
type fromConn struct {
	net.Conn
	remote net.Addr
}

func (c fromConn) RemoteAddr() net.Addr { return c.remote }
