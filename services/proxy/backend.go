// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"nvpair/internal/jsonrpc"
	"nvpair/shared/discovery"
	"nvpair/shared/facade"
)

// setLocalBackend says where this machine's own engines of the facade listen
// (PX-25, DEC-132).
func (f *facadeServer) setLocalBackend(req *jsonrpc.Request) {
	var b facade.Backend
	if !decode(req, &b) {
		return
	}
	if b.Engine != "" && b.Engine != f.engine.ID {
		req.Fail(jsonrpc.Errorf(jsonrpc.CodeInvalidParams,
			"params name engine %q but the request is addressed to %q", b.Engine, f.engine.ID))
		return
	}
	targets := append([]facade.LocalTarget{{Host: b.Host, Port: b.Port}}, b.More...)
	if err := f.checkTargets(targets); err != nil {
		req.Fail(err)
		return
	}
	var backends []string
	if b.Healthy && b.Port > 0 {
		backends = addresses(targets)
	}
	changed := f.replaceBackends(backends)
	req.Reply(discovery.Ack{OK: true})
	if changed && len(backends) > 0 {
		f.p.serving.Go(func() { f.ask(time.Now()) })
	}
}

// checkTargets refuses what is not this machine, and what is the router itself: a
// request must never come back to where it is, in whatever circle.
func (f *facadeServer) checkTargets(targets []facade.LocalTarget) error {
	if len(targets) > maxBackends {
		return jsonrpc.InvalidParams("more than %d engines of one facade", maxBackends)
	}
	for _, t := range targets {
		switch {
		case !isLoopback(t.Host):
			return jsonrpc.InvalidParams("local backend host %q is not loopback", t.Host)
		case f.p.here.listens(cmp.Or(t.Host, "127.0.0.1"), t.Port):
			return jsonrpc.InvalidParams("port %d is a facade's own", t.Port)
		}
	}
	return nil
}

// maxBackends bounds the engines behind one facade; a request for a model that is
// not known asks them all.
const maxBackends = 64

func addresses(targets []facade.LocalTarget) []string {
	var list []string
	for _, t := range targets {
		host := t.Host
		if host == "" || host == "localhost" {
			host = "127.0.0.1"
		}
		addr := net.JoinHostPort(host, strconv.Itoa(t.Port))
		if t.Port > 0 && t.Port <= 65535 && !slices.Contains(list, addr) {
			list = append(list, addr)
		}
	}
	return list
}

// replaceBackends reports whether the engines are others than before. Those that
// stay keep what is known of their models.
func (f *facadeServer) replaceBackends(backends []string) (changed bool) {
	f.state.mu.Lock()
	defer f.state.mu.Unlock()
	o := &f.state.overlay
	if slices.Equal(o.backends, backends) {
		return false
	}
	kept := make(map[string][]string)
	for _, addr := range backends {
		if models, told := o.inventory[addr]; told {
			kept[addr] = models
		}
	}
	o.backends, o.inventory = backends, kept
	f.rebuildLocked()
	return true
}

func isLoopback(host string) bool {
	if host == "" || host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback() && !a.Is4In6()
}
