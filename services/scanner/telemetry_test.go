// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/shared/discovery"
)

func TestLoadIsSampled(t *testing.T) {
	inLAN(t, func(l *lan) {
		l.up("10.0.0.2", other)
		l.node("beta", "10.0.0.2", other)
		for {
			line, ok := l.within(time.Minute)
			require.True(l.t, ok, "no sample")
			if strings.Contains(line, discovery.NotifyNodeTelemetry) {
				require.Contains(l.t, line, `{"hostUuid":"`+other+`","gpuUtilizationPercent":40,"telemetryValid":true,"msSince":100}`)
				return
			}
		}
	})
}

func TestThatThereIsNoReadingIsSaidOnce(t *testing.T) {
	var x telemetry
	p := &poll{}
	for _, tt := range []struct{ valid, news bool }{{false, true}, {false, false}, {true, true}, {true, true}, {false, true}, {false, false}} {
		require.Equal(t, tt.news, x.news(p, tt.valid))
	}
}

func TestNodesThatDoNotAnswerAreAskedLessAndLess(t *testing.T) { // DI-95
	for n, want := range []time.Duration{4, 8, 16, 30, 30, 30} {
		require.Equal(t, want*time.Second, backoff(n+1))
	}
	require.Equal(t, 2*time.Second, telemetryPeriod(""))
	for _, id := range []string{uuid, other, "x"} {
		d := telemetryPeriod(id)
		require.Equal(t, d, telemetryPeriod(id))
		require.InDelta(t, 2000, d.Milliseconds(), 250)
	}
}

func TestANodeWithoutAReadingIsAskedLessOften(t *testing.T) {
	for name, tt := range map[string]struct {
		valid    bool
		from, to int
	}{"with one": {true, 27, 35}, "without": {false, 6, 13}} { // in a minute, with the 15 s looks at the inventory
		inLAN(t, func(l *lan) {
			var asked atomic.Int32
			l.serve("10.0.0.2:14318", nil, func(w http.ResponseWriter, _ *http.Request) {
				asked.Add(1)
				_, _ = fmt.Fprintf(w, `{"GPUs":[],"telemetryValid":%v,"msSince":0,"hostUuid":%q}`, tt.valid, other)
			})
			l.node("beta", "10.0.0.2", other)
			l.after(discovery.NotifyNodeDiscovered, other)
			l.without("no such event", 10*time.Second)
			before := asked.Load()
			l.without("no such event", time.Minute)
			got := int(asked.Load() - before)
			require.True(l.t, tt.from <= got && got <= tt.to, "%s: %d requests in a minute", name, got)
		})
	}
}
