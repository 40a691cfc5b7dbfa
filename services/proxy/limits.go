// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"math/rand/v2"
	"time"
)

// limits are the bounds that a test may shorten. A zero field stands for the
// value below.
type limits struct {
	firstBackoff  time.Duration // 1 s, before the second round of one request (PX section 11)
	retryDeadline time.Duration // 10 min from a request's arrival
	writeTimeout  time.Duration // 30 s: what a client may take for what was sent to it (PX-77)
	probeEvery    time.Duration // 2 s between two questions for a sign of life (DEC-97)
	drainTimeout  time.Duration // 3 s for running requests when the worker stops
	held          int64         // 512 MiB of request bodies at once (DEC-145)
	replay        int64         // 32 MiB: the largest body that can go to another node (PX-44)
	streamed      int64         // 4 GiB: the largest inference body that is passed on (DEC-10)
}

func (l limits) orDefaults() limits {
	return limits{
		firstBackoff:  cmp.Or(l.firstBackoff, time.Second),
		retryDeadline: cmp.Or(l.retryDeadline, 10*time.Minute),
		writeTimeout:  cmp.Or(l.writeTimeout, 30*time.Second),
		probeEvery:    cmp.Or(l.probeEvery, 2*time.Second),
		drainTimeout:  cmp.Or(l.drainTimeout, 3*time.Second),
		held:          cmp.Or(l.held, 512<<20),
		replay:        cmp.Or(l.replay, 32<<20),
		streamed:      cmp.Or(l.streamed, 4<<30),
	}
}

// backoff returns the wait after n dispatches: 1, 2, 4, then 8 times the first, a
// quarter more or less.
func (l limits) backoff(n int) time.Duration {
	d := l.firstBackoff << min(max(n-1, 0), 3)
	return d*3/4 + rand.N(d/2)
}
