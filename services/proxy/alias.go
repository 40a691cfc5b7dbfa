// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"nvpair/internal/httpserve"
	"nvpair/shared/facade"
	"nvpair/shared/serviceerror"
)

// maxAliases is one for each family of addresses (PX-21).
const maxAliases = 2

// parseAliases checks at which addresses a facade is asked to serve besides its
// port, because this machine's clients were told of them: on loopback, all with
// one port.
func parseAliases(list []string, primary int) ([]netip.AddrPort, error) {
	var out []netip.AddrPort
	for _, s := range list {
		a, err := parseAlias(s)
		switch {
		case err != nil:
			return nil, err
		case int(a.Port()) == primary:
			return nil, fmt.Errorf("alias address %q has the facade's own port", s)
		case len(out) > 0 && out[0].Port() != a.Port():
			return nil, fmt.Errorf("alias addresses have different ports, %d and %d", out[0].Port(), a.Port())
		}
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	if len(out) > maxAliases {
		return nil, fmt.Errorf("more than %d alias addresses", maxAliases)
	}
	return out, nil
}

func parseAlias(s string) (netip.AddrPort, error) {
	host, text, err := net.SplitHostPort(s)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("alias address %q is not host:port", s)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.IsLoopback() || ip.Is4In6() {
		return netip.AddrPort{}, fmt.Errorf("alias address %q is not on loopback", s)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return netip.AddrPort{}, fmt.Errorf("alias address %q has no port from 1 to 65535", s)
	}
	return netip.AddrPortFrom(ip, uint16(port)), nil
}

// listenAliases binds all of the addresses or none. A conflict hurts nobody: its
// owner keeps the address, the facade's own port serves, and the user is told.
func (f *facadeServer) listenAliases(addrs []netip.AddrPort) {
	var bound []net.Listener
	for _, a := range addrs {
		ln, err := bind(a.String())
		if err != nil && noSuchAddress(err) && len(addrs) > 1 {
			continue // a machine without IPv6 has no conflict there
		}
		if err != nil {
			for _, b := range bound {
				_ = b.Close()
			}
			f.notify(serviceerror.MethodReport, serviceerror.ServiceError{
				ID: facade.AliasBlocked, EngineType: f.engine.ID,
				Message: fmt.Sprintf("%s cannot be served for %s clients: %v. "+
					"Unset OLLAMA_HOST, or let it name another port. No process was stopped", a, f.engine.DisplayName, err),
				Severity: serviceerror.SeverityWarning, Action: serviceerror.ActionNone,
			})
			return
		}
		bound = append(bound, ln)
	}
	var servers []*httpserve.Server
	var where []string
	for _, ln := range bound {
		server := f.newServer()
		servers, where = append(servers, server), append(where, ln.Addr().String())
		f.p.here.add(ln.Addr().String())
		f.p.serving.Go(func() { _ = server.Serve(ln) }) // returns when it is shut down
	}
	f.state.mu.Lock()
	f.state.aliases, f.state.aliased = servers, where
	f.rebuildLocked()
	f.state.mu.Unlock()
	f.notify(serviceerror.MethodClear, serviceerror.Clear{ID: facade.AliasBlocked})
}
