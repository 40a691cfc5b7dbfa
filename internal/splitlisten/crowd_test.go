// SPDX-License-Identifier: Apache-2.0

package splitlisten

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// placed is a connection that comes from where a test says.
type placed struct {
	net.Conn
	from net.Addr
}

func (p placed) RemoteAddr() net.Addr { return p.from }

func tcpAddr(ip string) net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(ip), 50000))
}

// dialFrom connects from an address.
func (m *memory) dialFrom(ip string) net.Conn {
	near, far := net.Pipe()
	m.conns <- placed{far, tcpAddr(ip)}
	return near
}

// flood opens silent connections.
func (m *memory) flood(n int, ip func(i int) string) []net.Conn {
	conns := make([]net.Conn, n)
	for i := range conns {
		conns[i] = m.dialFrom(ip(i))
	}
	return conns
}

func always(ip string) func(int) string { return func(int) string { return ip } }

// requireServed lets a client speak and a server take it, without a wait.
func requireServed(t *testing.T, l *Listener, client net.Conn) {
	t.Helper()
	began := time.Now()
	got := accept(l.Plain())
	_, err := io.WriteString(client, "x")
	require.NoError(t, err)
	conn := <-got
	require.NotNil(t, conn)
	_, err = io.ReadFull(conn, make([]byte, 1))
	require.NoError(t, err)
	require.Zero(t, time.Since(began))
	_, _ = conn.Close(), client.Close()
}

// requireGone tells which of many connections were closed at once: the first n.
func requireGone(t *testing.T, conns []net.Conn, n int) {
	t.Helper()
	synctest.Wait()
	for i, c := range conns {
		_ = c.SetReadDeadline(time.Now().Add(time.Nanosecond))
		_, err := c.Read(make([]byte, 1))
		require.Equal(t, i < n, err == io.EOF, "connection %d of %d: %v", i, len(conns), err)
	}
}

// requireEmpty ends a listener and looks at what it still holds.
func requireEmpty(t *testing.T, l *Listener, finish func() error) {
	t.Helper()
	require.NoError(t, l.Close())
	require.NoError(t, finish())
	for _, c := range []*crowd{l.local, l.strangers} {
		require.Zero(t, c.all.Len())
		require.Empty(t, c.sources)
	}
}

func TestAFloodFromOneSourceKeepsNobodyOut(t *testing.T) {
	for name, ip := range map[string]func(i int) string{
		"IPv4":        always("192.0.2.66"),
		"mapped IPv4": func(i int) string { return [...]string{"192.0.2.66", "::ffff:192.0.2.66"}[i%2] },
		"IPv6 subnet": func(i int) string { return fmt.Sprintf("2001:db8:0:1::%x", i) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, l, finish := start()
				began := time.Now()
				early := m.flood(10, func(i int) string { return fmt.Sprintf("192.0.2.%d", i) })
				silent := m.flood(9000, ip)
				require.Zero(t, time.Since(began), "accepting does not wait")
				for _, client := range early {
					requireServed(t, l, client)
				}
				for _, from := range []string{"127.0.0.1", "::1", "::ffff:127.0.0.1", "192.0.2.1", "2001:db8:0:2::1"} {
					requireServed(t, l, m.dialFrom(from))
				}
				requireGone(t, silent, 9000-1024)

				requireServed(t, l, m.dialFrom(ip(0))) // even from there
				pass(patience)
				requireGone(t, silent, 9000)
				require.Empty(t, l.strangers.sources)
				requireEmpty(t, l, finish)
			})
		})
	}
}

func TestAFloodFromManySourcesTakesNoPlaceOfThisMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l, finish := start()
		began := time.Now()
		here := m.flood(2048, func(i int) string { return fmt.Sprintf("127.0.0.%d", i%256) })
		silent := m.flood(9000, func(i int) string { return fmt.Sprintf("2001:db8:0:%x::1", i) })
		require.Zero(t, time.Since(began), "accepting does not wait")
		requireServed(t, l, m.dialFrom("192.0.2.1"))
		requireGone(t, silent, 9000-4096+1)
		requireGone(t, here, 0)

		there := silent[9000-4096+1:]
		more := m.flood(10, always("127.0.0.2"))
		requireGone(t, here, 10)
		requireGone(t, there, 0)
		requireServed(t, l, m.dialFrom("127.0.0.1"))
		requireGone(t, here, 11)
		requireEmpty(t, l, finish)
		requireGone(t, more, 10)
		requireGone(t, there, len(there))
	})
}

func TestConnectionsThatNoServerTakesGiveWayToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l, finish := start()
		began := time.Now()
		var stuck []net.Conn
		for range 1100 {
			c := m.dialFrom("192.0.2.66")
			_, err := c.Write([]byte{tlsHandshake})
			require.NoError(t, err)
			synctest.Wait()
			stuck = append(stuck, c)
		}
		requireGone(t, stuck, 1100-1024)
		requireServed(t, l, m.dialFrom("192.0.2.66"))
		require.Less(t, time.Since(began), time.Second)
		requireEmpty(t, l, finish)
		requireGone(t, stuck, 1100)
	})
}

func TestOneThatSpokeIsNewAmongThoseThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l, finish := start()
		oldest := m.dialFrom("192.0.2.66")
		silent := m.flood(1023, always("192.0.2.66"))
		synctest.Wait() // the last one is in before the oldest speaks
		_, err := io.WriteString(oldest, "x")
		require.NoError(t, err)
		synctest.Wait()
		more := m.flood(1023, always("192.0.2.66"))
		requireGone(t, silent, 1023)
		conn := <-accept(l.Plain())
		require.NotNil(t, conn)
		_, _ = conn.Close(), oldest.Close()
		requireGone(t, more, 0)
		requireEmpty(t, l, finish)
	})
}

func TestWhatWasHandedOverNeverGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l, finish := start()
		got := accept(l.Plain())
		client := m.dialFrom("192.0.2.66")
		_, _ = io.WriteString(client, "a")
		conn := <-got
		m.flood(3000, always("192.0.2.66"))
		go func() { _, _ = io.WriteString(client, "b") }()
		both := make([]byte, 2)
		_, err := io.ReadFull(conn, both)
		require.NoError(t, err)
		require.Equal(t, "ab", string(both))
		_, _ = conn.Close(), client.Close()
		requireEmpty(t, l, finish)
	})
}

// abroad is a listener to which clients at 127.0.0.2 are strangers.
type abroad struct{ net.Listener }

func (a abroad) Accept() (net.Conn, error) {
	conn, err := a.Listener.Accept()
	if err == nil && conn.RemoteAddr().(*net.TCPAddr).IP.String() == "127.0.0.2" {
		conn = placed{conn, tcpAddr("192.0.2.66")}
	}
	return conn, err
}

func TestAFloodOverRealSocketsDelaysNobody(t *testing.T) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	l := New(abroad{ln})
	ended := make(chan error, 1)
	go func() { ended <- l.Serve() }()
	dial := func(from string) net.Conn {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 10 * time.Second}
		c, err := d.Dial("tcp4", ln.Addr().String())
		if err != nil && from != "127.0.0.1" {
			t.Skipf("connect from %s: %v", from, err) // no such alias on macOS
		}
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		require.NoError(t, <-ended)
	})

	// The places of the source are filled more than once.
	var first net.Conn
	for i := range 1500 {
		if c := dial("127.0.0.2"); i == 0 {
			first = c
		}
		if i%100 != 0 {
			continue
		}
		for _, from := range []string{"127.0.0.1", "127.0.0.3", "127.0.0.2"} {
			began := time.Now()
			c := dial(from)
			_, err := io.WriteString(c, "hello")
			require.NoError(t, err)
			conn, err := l.Plain().Accept()
			require.NoError(t, err)
			said := make([]byte, 5)
			_, err = io.ReadFull(conn, said)
			require.NoError(t, err)
			require.Equal(t, "hello", string(said))
			require.Less(t, time.Since(began), 2*time.Second, "client at %s", from)
			_, _ = conn.Close(), c.Close()
		}
	}
	_ = first.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, err = first.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}
