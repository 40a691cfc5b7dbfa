// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDelaysDoubleUpToTheirLimit(t *testing.T) {
	p := DefaultPolicy()
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 16} {
		require.Equal(t, want*time.Second, p.delay(i+1), "restart %d", i+1)
	}
	require.Equal(t, 16*time.Second, p.delay(1_000_000), "no overflow")
}

// step is one ping period: what the link's reader noticed in it, then what the
// monitor's tick must yield.
type step struct {
	heard, hello bool
	answered     int64
	ping         int64
	hung         string
}

func TestHangingIsCountedInUnansweredPings(t *testing.T) {
	const no, yes = false, true
	for _, tt := range []struct {
		name  string
		ours  bool
		steps []step
	}{
		{"never answers", no, []step{{hello: yes, ping: 1}, {ping: 2}, {ping: 3}, {hung: "hung: 3 pings unanswered"}}},
		{"hello is something heard", no, []step{{hello: yes, heard: yes}, {ping: 1}}},
		{"answers each", no, []step{{hello: yes, ping: 1}, {answered: 1, ping: 2}, {answered: 2, ping: 3},
			{answered: 3, ping: 4}, {answered: 4, ping: 5}}},
		{"no ping on a link that is not silent", no, []step{{hello: yes, heard: yes}, {heard: yes}, {heard: yes},
			{heard: yes}, {ping: 1}, {answered: 1, heard: yes}, {ping: 2}}},
		{"a late answer counts", no, []step{{hello: yes, ping: 1}, {ping: 2}, {ping: 3}, {answered: 1, ping: 4}, {ping: 5},
			{ping: 6}, {hung: "hung: 3 pings unanswered"}}},
		{"an answer to no ping does not count", no, []step{{hello: yes, ping: 1}, {ping: 2}, {answered: 9, ping: 3},
			{answered: -1, hung: "hung: 3 pings unanswered"}}},
		{"chatter is no answer", no, []step{{hello: yes, ping: 1}, {heard: yes}, {ping: 2}, {heard: yes}, {ping: 3},
			{heard: yes, hung: "hung: 3 pings unanswered"}}},
		{"ours without hello", yes, []step{{}, {heard: yes}, {}, {hung: "hung: it never said hello"}}},
		{"ours with a late hello", yes, []step{{}, {}, {}, {hello: yes, ping: 1}, {answered: 1, ping: 2}}},
		{"foreign without hello", no, []step{{}, {heard: yes}, {}, {}, {}, {}, {}, {}}},
	} {
		policy := Policy{PingMisses: 3, HelloTicks: 4}
		p := &Process{}
		for i, s := range tt.steps {
			if s.hello {
				p.Announced()
			}
			if s.heard {
				p.Heard()
			}
			if s.answered != 0 {
				p.Answered(s.answered)
			}
			ping, hung := p.live.tick(policy, func() bool { return tt.ours })
			if ping != s.ping || hung != s.hung {
				t.Errorf("%s, tick %d: ping %d, hung %q; want %d, %q", tt.name, i+1, ping, hung, s.ping, s.hung)
			}
		}
	}
}

// pinged is a Link that passes on each ping.
type pinged func(seq int64)

func (f pinged) Ping(seq int64)      { f(seq) }
func (pinged) CloseWrite()           { panic("not expected") }
func (pinged) Serve(context.Context) { panic("not expected") }

// attended is how an incarnation in virtual time went.
type attended struct {
	cause   string
	healthy bool
	after   time.Duration
	pings   []int64
	reports int // calls of Healthy
}

// attend lets a monitor attend a process without a program under the default
// policy. life, on a goroutine of its own, stands for the program; the process
// exits when it returns. answer is called for each ping.
func attend(t *testing.T, p *Process, ours bool, answer func(seq int64), life func()) attended {
	t.Helper()
	var a attended
	c := New(Config{
		Policy:  DefaultPolicy(),
		Log:     slog.New(slog.DiscardHandler),
		Ours:    func(path string) bool { require.Equal(t, p.Path, path); return ours },
		Healthy: func() { a.reports++ },
	})
	p.exited = make(chan struct{})
	go func() { defer close(p.exited); life() }()
	begin := time.Now()
	a.cause, a.healthy = c.attend(p, pinged(func(seq int64) {
		a.pings = append(a.pings, seq)
		answer(seq)
	}), nil)
	a.after = time.Since(begin)
	<-p.exited
	return a
}

func TestHungProcessIsNoticedWithinTwentySeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Process{}
		got := attend(t, p, true, func(int64) {}, func() {
			p.Announced()
			p.Heard()
			<-time.After(time.Minute)
		})
		require.Equal(t, attended{cause: "hung: 3 pings unanswered", after: 17500 * time.Millisecond, pings: []int64{1, 2, 3}}, got)
	})
}

func TestAnsweringProcessLivesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Process{Generation: 1}
		got := attend(t, p, true, func(seq int64) { p.Heard(); p.Answered(seq) }, func() {
			p.Announced()
			<-time.After(time.Hour + time.Second)
		})
		require.Empty(t, got.cause)
		require.True(t, got.healthy)
		require.Zero(t, got.reports, "it was never restarted")
		require.Len(t, got.pings, 3600/7, "an answer is traffic, so every other period needs no ping")
	})
}

func TestBusyLinkIsNotPinged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Process{}
		got := attend(t, p, true, func(int64) {}, func() {
			p.Announced()
			for range 3600 {
				p.Heard()
				<-time.After(time.Second)
			}
		})
		require.Empty(t, got.cause)
		require.Empty(t, got.pings)
	})
}

func TestProgramOfOursMustSayHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := attend(t, &Process{Path: "/bin/ours"}, true, func(int64) {}, func() { <-time.After(time.Minute) })
		require.Equal(t, attended{cause: "hung: it never said hello", after: 28 * time.Second}, got)
	})
}

func TestForeignProgramNeedNotSayHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := attend(t, &Process{Path: "/bin/foreign"}, false, func(int64) {}, func() { <-time.After(time.Hour) })
		require.Equal(t, attended{healthy: true, after: time.Hour}, got)
	})
}

func TestRestartedProcessIsHealthyAfterAMinute(t *testing.T) {
	for _, tt := range []struct {
		up   time.Duration
		want bool
	}{{time.Minute - time.Second, false}, {time.Minute + time.Second, true}} {
		synctest.Test(t, func(t *testing.T) {
			got := attend(t, &Process{Generation: 2}, false, func(int64) {}, func() { <-time.After(tt.up) })
			require.Equal(t, tt.want, got.healthy, tt.up)
			require.Equal(t, tt.want, got.reports == 1, tt.up)
		})
	}
}
