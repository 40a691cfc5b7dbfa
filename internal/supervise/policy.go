// SPDX-License-Identifier: Apache-2.0

package supervise

import "time"

// Policy holds the times and budgets of a Child. Use DefaultPolicy; tests with
// real processes shorten it (DEC-117).
type Policy struct {
	FirstDelay   time.Duration // wait before the first restart of a streak
	MaxDelay     time.Duration // longest wait
	Budget       int           // restarts in a streak
	HealthyAfter time.Duration // up that long ends a streak

	PingEvery  time.Duration // while the link is silent
	PingMisses int           // unanswered pings that mean hung
	HelloTicks int           // ping periods a program of ours has to announce itself

	StopGrace time.Duration // after end of input
	TermGrace time.Duration // after the terminate signal
	KillGrace time.Duration // after the kill; then it is abandoned
	MinGrace  time.Duration // least grace after end of input, however late it is
	Drain     time.Duration // for the last output of a program that has ended
}

// DefaultPolicy returns the policy of BR-9 (delays of 1, 2, 4, 8, 16 s, five
// restarts, healthy after 60 s), DEC-113 (three misses, hello within 30 s) and
// BR-73 (3 s, 2 s, 2 s, at least 250 ms).
//
// The ping period is 3.5 s, not DEC-113's 4: a worker that stops right after a
// frame is noticed after five periods, and is to be replaced within 20 s.
func DefaultPolicy() Policy {
	return Policy{
		FirstDelay: time.Second, MaxDelay: 16 * time.Second, Budget: 5, HealthyAfter: time.Minute,
		PingEvery: 3500 * time.Millisecond, PingMisses: 3, HelloTicks: 8,
		StopGrace: 3 * time.Second, TermGrace: 2 * time.Second, KillGrace: 2 * time.Second,
		MinGrace: 250 * time.Millisecond, Drain: 2 * time.Second,
	}
}

// delay returns the wait before restart n of a streak, n from 1.
func (p Policy) delay(n int) time.Duration {
	return min(p.FirstDelay<<min(n-1, 10), p.MaxDelay) // the inner min keeps the shift from overflowing
}
