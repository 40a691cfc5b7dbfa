// SPDX-License-Identifier: Apache-2.0

package splitlisten

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a listener whose connections a test makes with dial.
type memory struct {
	conns  chan net.Conn
	fails  chan error // errors of Accept
	closed chan struct{}
	once   sync.Once
}

func newMemory() *memory {
	return &memory{conns: make(chan net.Conn), fails: make(chan error), closed: make(chan struct{})}
}

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case err := <-m.fails:
		return nil, err
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error {
	m.once.Do(func() { close(m.closed) })
	return nil
}

func (m *memory) Addr() net.Addr { return &net.TCPAddr{Port: 1} }

func (m *memory) dial() net.Conn {
	near, far := net.Pipe()
	m.conns <- far
	return near
}

// start serves a split of an in-memory listener. Its end is awaited with finish.
func start() (m *memory, l *Listener, finish func() error) {
	m = newMemory()
	l = New(m)
	ended := make(chan error, 1)
	go func() { ended <- l.Serve() }()
	return m, l, func() error { return <-ended }
}

// accept takes the next connection of a side in the background.
func accept(side net.Listener) <-chan net.Conn {
	got := make(chan net.Conn, 1)
	go func() {
		defer close(got)
		if c, err := side.Accept(); err == nil {
			got <- c
		}
	}()
	return got
}

// pass lets time go by in a bubble.
func pass(d time.Duration) { <-time.After(d) }

// isClosed waits until the other end has closed c, and returns how long that took.
func isClosed(t *testing.T, c net.Conn) time.Duration {
	t.Helper()
	began := time.Now()
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	return time.Since(began)
}

func TestTheFirstByteDecidesAndIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l, finish := start()
		for first := range 256 {
			side := l.Plain()
			if first == 0x16 {
				side = l.TLS()
			}
			got := accept(side)
			client := m.dial()
			sent := string([]byte{byte(first)}) + "rest"
			go func() { _, _ = io.WriteString(client, sent); _ = client.Close() }()
			conn := <-got
			all, err := io.ReadAll(conn)
			require.NoError(t, err)
			require.Equal(t, sent, string(all))
			require.NoError(t, conn.Close())
		}
		require.NoError(t, l.Close())
		require.NoError(t, finish())
	})
}

func TestAReadOfNothingDoesNotLoseTheFirstByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l, finish := start()
		got := accept(l.Plain())
		client := m.dial()
		go func() { _, _ = io.WriteString(client, "ab"); _ = client.Close() }()
		conn := <-got
		n, err := conn.Read(nil)
		require.Zero(t, n)
		_ = err // of the pipe, either way
		all, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.Equal(t, "ab", string(all))
		_ = conn.Close()
		require.NoError(t, l.Close())
		require.NoError(t, finish())
	})
}

func TestASilentConnectionIsClosedAfterFiveSecondsAndDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l, finish := start()
		var silent []net.Conn
		for range 100 {
			silent = append(silent, m.dial())
		}
		began := time.Now()
		got := accept(l.Plain())
		quick := m.dial()
		go func() { _, _ = io.WriteString(quick, "x") }()
		conn := <-got
		require.Zero(t, time.Since(began), "the others are not waited for")
		for _, c := range silent {
			isClosed(t, c)
		}
		require.Equal(t, 5*time.Second, time.Since(began))

		go func() { _, _ = io.WriteString(quick, "y") }() // no deadline is left on what was handed over
		pass(time.Minute)
		both := make([]byte, 2)
		_, err := io.ReadFull(conn, both)
		require.NoError(t, err)
		require.Equal(t, "xy", string(both))
		_, _ = conn.Close(), quick.Close()
		require.NoError(t, l.Close())
		require.NoError(t, finish())
	})
}

func TestAConnectionThatNoServerTakesIsClosedAfterFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l, finish := start()
		client := m.dial()
		_, err := io.WriteString(client, "x")
		require.NoError(t, err)
		require.Equal(t, 5*time.Second, isClosed(t, client))

		// The other side is served meanwhile.
		lost, taken := m.dial(), m.dial()
		_, _ = io.WriteString(lost, "x")
		got := accept(l.TLS())
		go func() { _, _ = taken.Write([]byte{0x16}) }()
		conn := <-got
		require.NotNil(t, conn)
		_, _ = conn.Close(), taken.Close()
		require.Equal(t, 5*time.Second, isClosed(t, lost))
		require.NoError(t, l.Close())
		require.NoError(t, finish())
	})
}

func TestCloseEndsBothSidesAndWhatIsUndecided(t *testing.T) {
	for name, closing := range map[string]func(l *Listener) error{
		"whole": (*Listener).Close,
		"plain": func(l *Listener) error { return l.Plain().Close() },
		"tls":   func(l *Listener) error { return l.TLS().Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, l, finish := start()
				handed := accept(l.Plain())
				old := m.dial()
				go func() { _, _ = io.WriteString(old, "o") }()
				kept := <-handed
				silent, waiting := m.dial(), m.dial()
				_, _ = io.WriteString(waiting, "w")
				atTLS, began := accept(l.TLS()), time.Now()
				synctest.Wait()
				require.NoError(t, closing(l))
				require.NoError(t, l.Close(), "again is harmless")
				require.NoError(t, finish())
				isClosed(t, silent)
				isClosed(t, waiting)
				require.Nil(t, <-atTLS)
				for _, side := range []net.Listener{l.TLS(), l.Plain()} {
					_, err := side.Accept()
					require.ErrorIs(t, err, net.ErrClosed)
				}
				require.Zero(t, time.Since(began), "nothing is waited for")

				go func() { _, _ = io.WriteString(old, "n") }() // what was handed over lives on
				both := make([]byte, 2)
				_, err := io.ReadFull(kept, both)
				require.NoError(t, err)
				require.Equal(t, "on", string(both))
				_, _ = kept.Close(), old.Close()
			})
		})
	}
}

// stubborn is a connection whose first read deadline takes a while to be set, as
// on a machine that is busy just then.
type stubborn struct{ net.Conn }

func (s stubborn) SetReadDeadline(at time.Time) error {
	if time.Until(at) > 0 {
		pass(time.Second)
	}
	return s.Conn.SetReadDeadline(at)
}

func TestCloseIsNotOverriddenByAConnectionThatIsJustBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l, finish := start()
		near, far := net.Pipe()
		m.conns <- stubborn{far}
		synctest.Wait()
		began := time.Now()
		require.NoError(t, l.Close())
		require.NoError(t, finish())
		require.Equal(t, time.Second, time.Since(began), "the patience is not waited out")
		_ = near.Close()
	})
}

func TestNothingIsHandedOverAfterClose(t *testing.T) {
	for range 200 {
		m, l, finish := start()
		clients := make(chan net.Conn, 1)
		go func() {
			near, far := net.Pipe()
			clients <- near
			select {
			case m.conns <- far:
				_, _ = io.WriteString(near, "x")
			case <-m.closed:
				_ = far.Close()
			}
		}()
		closed := make(chan struct{})
		go func() {
			_ = l.Close()
			close(closed)
		}()
		<-closed
		_, err := l.Plain().Accept()
		require.ErrorIs(t, err, net.ErrClosed)
		require.NoError(t, finish())
		_ = (<-clients).Close()
	}
}

func TestErrorsOfAcceptThatPassAreWaitedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l, finish := start()
		began := time.Now()
		var waits []time.Duration
		last := began
		for range 11 {
			m.fails <- &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
			waits = append(waits, time.Since(last))
			last = time.Now()
		}
		ms := time.Millisecond
		require.Equal(t, []time.Duration{
			0, 5 * ms, 10 * ms, 20 * ms, 40 * ms, 80 * ms, 160 * ms, 320 * ms, 640 * ms, time.Second, time.Second,
		}, waits)

		got := accept(l.Plain())
		client := m.dial()
		_, _ = io.WriteString(client, "x")
		_, _ = (<-got).Close(), client.Close()
		m.fails <- syscall.ECONNABORTED
		last = time.Now()
		m.fails <- syscall.ECONNABORTED
		require.Equal(t, 5*ms, time.Since(last), "a success starts the waits anew")
		require.NoError(t, l.Close(), "does not wait for the pause")
		require.NoError(t, finish())
	})
}

func TestALastingErrorOfAcceptClosesBothSides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l, finish := start()
		broken := errors.New("listener is broken")
		silent := m.dial()
		plain, tls := accept(l.Plain()), accept(l.TLS())
		m.fails <- broken
		require.ErrorIs(t, finish(), broken)
		require.Nil(t, <-plain)
		require.Nil(t, <-tls)
		isClosed(t, silent)
		_, open := <-m.closed
		require.False(t, open, "the base is closed too")
	})
}

func TestBothSidesHaveTheAddressOfTheBase(t *testing.T) {
	l := New(newMemory())
	require.Equal(t, ":1", l.TLS().Addr().String())
	require.Equal(t, ":1", l.Plain().Addr().String())
	require.NoError(t, l.Close())
}

// A server that refuses a large body answers, ends its half, and lets the client
// read before it closes: net/http looks for CloseWrite.
func TestAServerCanEndItsHalfOfAConnection(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := New(ln)
	ended := make(chan error, 1)
	go func() { ended <- l.Serve() }()
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	_, err = io.WriteString(c, "ask")
	require.NoError(t, err)

	conn, err := l.Plain().Accept()
	require.NoError(t, err)
	_, err = io.WriteString(conn, "answer")
	require.NoError(t, err)
	require.NoError(t, conn.(interface{ CloseWrite() error }).CloseWrite())
	got, err := io.ReadAll(c)
	require.NoError(t, err, "the end is seen")
	require.Equal(t, "answer", string(got))
	_, err = io.WriteString(c, " and go on")
	require.NoError(t, err)
	require.NoError(t, c.Close())
	got, err = io.ReadAll(conn)
	require.NoError(t, err)
	require.Equal(t, "ask and go on", string(got))
	_ = conn.Close()
	require.NoError(t, l.Close())
	require.NoError(t, <-ended)

	near, far := net.Pipe()
	defer func() { _, _ = near.Close(), far.Close() }()
	require.ErrorIs(t, (&prefixed{Conn: far}).CloseWrite(), errors.ErrUnsupported)
}

// BenchmarkConnection is the cost of a connection from its dial to its hand-over.
func BenchmarkConnection(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	l := New(ln)
	ended := make(chan error, 1)
	go func() { ended <- l.Serve() }()
	for b.Loop() {
		c, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(b, err)
		_, _ = c.Write([]byte("x"))
		got, err := l.Plain().Accept()
		require.NoError(b, err)
		_, _ = got.Close(), c.Close()
	}
	require.NoError(b, l.Close())
	require.NoError(b, <-ended)
}
