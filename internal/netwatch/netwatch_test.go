// SPDX-License-Identifier: Apache-2.0

package netwatch_test

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"nvpair/internal/netwatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

// machine is a system whose addresses a test changes. Its time starts with it.
type machine struct {
	t     *testing.T
	begin time.Time
	stop  func()

	mu      sync.Mutex // guards the rest
	list    []netwatch.Address
	err     error   // of reading the addresses
	deaf    error   // of opening a source
	source  *source // the open one
	opened  int     // sources so far
	looks   int     // since the last call of news
	reports []time.Duration
}

// source hands hints over one at a time.
type source struct {
	hints  chan error // unbuffered
	closed chan struct{}
}

func (s *source) Wait() error {
	select {
	case err := <-s.hints:
		return err
	case <-s.closed:
		return errors.New("closed")
	}
}

func (s *source) Close() error { close(s.closed); return nil }

// start watches a machine with one address, in a bubble, until the end of the test.
func start(t *testing.T, deaf error) *machine {
	m := &machine{t: t, begin: time.Now(), deaf: deaf}
	m.set("192.0.2.1/24")
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		netwatch.Run(ctx, netwatch.Config{Addresses: m.addresses, Open: m.open}, m.changed)
	})
	m.stop = func() { cancel(); running.Wait() }
	t.Cleanup(m.stop)
	synctest.Wait()
	require.Equal(t, []time.Duration{0}, m.news(), "once the watch is in place")
	return m
}

func (m *machine) set(prefixes ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = nil
	for _, p := range prefixes {
		m.list = append(m.list, netwatch.Address{Interface: "eth0", Index: 2, Prefix: netip.MustParsePrefix(p)})
	}
}

func (m *machine) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

func (m *machine) addresses() ([]netwatch.Address, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.looks++
	return m.list, m.err
}

func (m *machine) open() (netwatch.Source, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opened++
	if m.deaf != nil {
		return nil, m.deaf
	}
	m.source = &source{make(chan error), make(chan struct{})}
	return m.source, nil
}

// hint has the source tell, or break.
func (m *machine) hint(err error) {
	m.mu.Lock()
	s := m.source
	m.mu.Unlock()
	s.hints <- err
}

func (m *machine) changed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reports = append(m.reports, time.Since(m.begin))
}

// news returns when changes were told since the last call.
func (m *machine) news() []time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	reports := m.reports
	m.reports, m.looks = nil, 0
	return reports
}

func (m *machine) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.looks
}

// until lets time go by, up to a moment since the start.
func (m *machine) until(d time.Duration) {
	<-time.After(time.Until(m.begin.Add(d)))
	synctest.Wait()
}

func TestAChangeAfterAQuietTimeIsToldSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, nil)
		m.until(20 * time.Second)
		require.Zero(t, m.count(), "at rest nothing is read")
		m.set("192.0.2.1/24", "198.51.100.1/24")
		m.hint(nil)
		m.until(25 * time.Second)
		require.Equal(t, 1, m.count())
		require.Equal(t, []time.Duration{20100 * ms}, m.news())
	})
}

func TestABurstIsToldOfAtItsBeginningAndAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, nil)
		m.until(20 * time.Second)
		for i := range 10 { // one change after another, for a second
			m.set(netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 2)}), 24).String())
			m.hint(nil)
			m.until(20*time.Second + time.Duration(i+1)*100*ms)
		}
		m.until(30 * time.Second)
		require.Equal(t, 2, m.count())
		require.Equal(t, []time.Duration{20100 * ms, 21600 * ms}, m.news())
	})
}

func TestANetworkThatFlapsIsLookedAtEverySecondAndAHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, nil)
		m.until(5 * time.Second)
		for i := range 1500 { // for 15 s
			m.set("192.0.2.1/24", netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8).String())
			m.hint(nil)
			m.until(5*time.Second + time.Duration(i+1)*10*ms)
		}
		m.until(20 * time.Second)
		require.Equal(t, 10, m.count())
		require.Len(t, m.news(), 10)
	})
}

func TestHintsWithoutAChangeAreNotPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, nil)
		m.set("192.0.2.1/24", "198.51.100.1/24")
		m.hint(nil)
		m.until(5 * time.Second)
		require.Len(t, m.news(), 1)

		m.set("198.51.100.1/24", "192.0.2.1/24") // another order
		m.hint(nil)
		m.until(10 * time.Second)
		m.set("192.0.2.1/24")
		m.hint(nil)
		m.set("192.0.2.1/24", "198.51.100.1/24") // back before the look
		m.until(15 * time.Second)
		require.Equal(t, 2, m.count())
		require.Empty(t, m.news())

		m.set("192.0.2.1/25", "198.51.100.1/24") // another subnet
		m.hint(nil)
		m.until(20 * time.Second)
		require.Len(t, m.news(), 1)
	})
}

func TestWhatNobodyToldIsFoundWithinAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, nil)
		m.until(10 * time.Second)
		m.set("198.51.100.1/24")
		m.until(5 * time.Minute)
		require.Equal(t, 5, m.count(), "one look a minute")
		require.Equal(t, []time.Duration{time.Minute}, m.news())
	})
}

func TestASystemThatDoesNotTellIsPolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, errors.ErrUnsupported)
		m.until(15 * time.Second)
		m.set("198.51.100.1/24")
		m.until(25 * time.Second)
		require.Equal(t, []time.Duration{20 * time.Second}, m.news())
	})
}

func TestASourceThatBreaksIsOpenedAgainAndNothingIsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, nil)
		m.until(20 * time.Second)
		m.set("198.51.100.1/24") // lost with the source
		m.hint(errors.New("broken"))
		m.until(21 * time.Second)
		require.Equal(t, []time.Duration{20100 * ms}, m.news())
		require.Equal(t, 1, m.opened, "no busy loop")

		m.set("198.51.100.2/24") // while there is none
		m.until(31 * time.Second)
		require.Equal(t, []time.Duration{30 * time.Second}, m.news(), "opened again")
		require.Equal(t, 2, m.opened)

		m.set("198.51.100.3/24")
		m.hint(nil)
		m.until(35 * time.Second)
		require.Len(t, m.news(), 1)
	})
}

func TestASourceThatAlwaysBreaksIsOpenedEveryTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, nil)
		for i := range 6 {
			m.hint(errors.New("broken"))
			m.until(time.Duration(i+1) * 10 * time.Second)
		}
		require.Equal(t, 7, m.opened)
		require.LessOrEqual(t, m.count(), 13)
		require.Empty(t, m.news())
	})
}

func TestAddressesThatCannotBeReadStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, nil)
		m.fail(errors.New("too many open files"))
		m.hint(nil)
		m.until(5 * time.Second)
		require.Empty(t, m.news())
		m.set("198.51.100.1/24")
		m.fail(nil)
		m.until(15 * time.Second)
		require.Len(t, m.news(), 1, "read again without a hint")
	})
}

func TestRunEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, nil)
		m.stop()
		select {
		case <-m.source.closed:
		default:
			t.Error("the source is still open")
		}
	})
}
