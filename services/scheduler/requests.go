// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"encoding/json"
	"time"

	"nvpair/internal/jsonrpc"
	"nvpair/shared/schedule"
)

func (s *service) request(req *jsonrpc.Request) {
	switch req.Method {
	case schedule.MethodGetStatus:
		req.Reply(s.status())
	case schedule.MethodGetInterval:
		req.Reply(schedule.Interval{Millis: s.status().IntervalMillis})
	case schedule.MethodSetInterval:
		s.setInterval(req)
	case schedule.MethodTick:
		req.Reply(schedule.Ticked{Ticked: true}) // before what it forces (JS-47)
		s.force()
	default:
		s.link.Unknown(req)
	}
}

// setInterval applies from the next wait on (JS-46).
func (s *service) setInterval(req *jsonrpc.Request) {
	var want schedule.Interval
	if err := json.Unmarshal(req.Params, &want); err != nil || want.Millis <= 0 {
		req.Fail(jsonrpc.InvalidParams(`expected {"interval_ms": <positive int>}`))
		return
	}
	millis := min(want.Millis, maxInterval.Milliseconds()) // before it could overflow
	interval := clampInterval(time.Duration(millis) * time.Millisecond)
	s.mu.Lock()
	s.interval = interval
	s.mu.Unlock()
	req.Reply(schedule.Interval{Millis: interval.Milliseconds()})
}

func (s *service) status() schedule.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := schedule.Status{IntervalMillis: s.interval.Milliseconds(), Engines: map[string]schedule.EngineStatus{}}
	for _, o := range s.outputs {
		emitted := o.delivered
		if emitted == nil {
			emitted = []schedule.NodeRank{}
		}
		all.Engines[o.engine] = schedule.EngineStatus{Engine: o.engine, Emitted: emitted, LastEmittedMillis: o.at}
	}
	return all
}
