// SPDX-License-Identifier: Apache-2.0

package nodeinfo

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"nvpair/internal/jsonrpc"
	wire "nvpair/shared/nodeinfo"
)

// reportEvery is the period of the reports of observed addresses (NI-21).
const reportEvery = 30 * time.Second

// handle takes the broker's pushes. They are notifications; what is malformed
// leaves the old value in force (NI-18).
func (s *service) handle(req *jsonrpc.Request) {
	if !req.IsNotification() {
		s.link.Unknown(req)
		return
	}
	switch req.Method {
	case wire.MethodSetClusterIdentity:
		var c wire.ClusterIdentity
		if s.decode(req, &c) {
			s.route.cluster.Store(c.ClusterUUID)
			s.log.Info("cluster identity set", "member", *c.ClusterUUID != "")
		}
	case wire.MethodSetServices:
		var p wire.Services
		if s.decode(req, &p) {
			s.route.services.Store(&p.Services)
			s.log.Debug("services set", "services", len(p.Services))
		}
	default:
		s.link.Unknown(req)
	}
}

// decode reads and checks params; false means that they were dropped.
func (s *service) decode(req *jsonrpc.Request, into interface{ Validate() error }) bool {
	err := errors.New("not an object")
	if len(req.Params) > 0 && req.Params[0] == '{' {
		err = json.Unmarshal(req.Params, into)
	}
	if err == nil {
		err = into.Validate()
	}
	if err != nil {
		s.log.Warn("notification dropped", "method", req.Method, "err", err)
	}
	return err == nil
}

// background runs all but the link until ctx ends. A listener that fails ends
// the worker with its error.
func (s *service) background(ctx context.Context, listeners []listener, fail func(error)) {
	var wg sync.WaitGroup
	wg.Go(func() { s.collector.run(ctx) })
	wg.Go(func() { s.report(ctx) })
	serve := func(f func() error) {
		wg.Go(func() {
			if err := f(); err != nil {
				fail(err)
			}
		})
	}
	for _, l := range listeners {
		if l.pump != nil {
			serve(l.pump)
		}
		serve(func() error { return s.serve(ctx, l) })
	}
	wg.Wait()
}

// report tells the observed addresses until ctx ends, an empty list too: so old
// evidence is withdrawn and a restarted broker learns the present one.
func (s *service) report(ctx context.Context) {
	ticks := time.NewTicker(reportEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			err := s.link.Notify(wire.NotifyObservedAddresses, wire.ObservedAddresses{Addresses: s.observer.addresses()})
			if err != nil {
				s.log.Debug("observed addresses not reported", "err", err)
			}
		case <-ctx.Done():
			return
		}
	}
}
