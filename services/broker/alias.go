// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"nvpair/shared/discovery"
	"nvpair/shared/engine"
	"nvpair/shared/facade"
	"nvpair/shared/serviceerror"
)

// hostAlias is where OLLAMA_HOST sends this machine's Ollama clients, if that is a
// place on this machine other than Ollama's usual port: its facade serves there
// too. The zero value is none.
type hostAlias struct {
	port  int
	hosts []string // loopback addresses, claimed together or not at all
}

const ollamaPort = 11434

// parseOllamaHost reads the variable as Ollama's clients do (BR-92, BR-93). It is
// never resolved or contacted.
func parseOllamaHost(text string) hostAlias {
	text = strings.Trim(strings.Trim(strings.TrimSpace(text), `"`), "'")
	port, hostPort := ollamaPort, text
	if scheme, rest, ok := strings.Cut(text, "://"); ok {
		if !strings.EqualFold(scheme, "http") {
			return hostAlias{}
		}
		port, hostPort = 80, rest
	}
	hostPort = strings.TrimSuffix(hostPort, "/")
	if text == "" || hostPort == "ollama.com" || strings.ContainsAny(hostPort, "@?#/") {
		return hostAlias{}
	}
	host := hostPort
	if h, p, err := net.SplitHostPort(hostPort); err == nil {
		host = h
		if n, err := strconv.Atoi(p); err == nil && n >= 1 && n <= 65535 {
			port = n
		}
	}
	hosts := aliasHosts(host)
	if port == ollamaPort || hosts == nil {
		return hostAlias{}
	}
	return hostAlias{port, hosts}
}

// aliasHosts are the loopback addresses that a host stands for, nil for none.
func aliasHosts(host string) []string {
	host = strings.Trim(host, "[]")
	switch strings.ToLower(strings.TrimSuffix(host, ".")) {
	case "", "localhost", "0.0.0.0", "::":
		return []string{"127.0.0.1", "::1"}
	}
	a, err := netip.ParseAddr(host)
	if err != nil || !a.IsLoopback() || a.Is4In6() {
		return nil
	}
	return []string{a.String()}
}

// aliasFor returns the addresses that a facade on that port serves besides it.
func (f *facades) aliasFor(ctx context.Context, e engine.Engine, port int) []string {
	if !e.Aliases || f.alias.port == 0 || !f.managed(ctx) {
		return nil
	}
	if owner := f.aliasConflict(e, port); owner != "" {
		f.b.funnel.raise(serviceerror.ServiceError{
			ID: facade.AliasBlocked, EngineType: e.ID,
			Message: fmt.Sprintf("OLLAMA_HOST names port %d, which belongs to %s: it is not served for %s clients. "+
				"Unset OLLAMA_HOST, or let it name another port. No process was stopped", f.alias.port, owner, e.DisplayName),
			Severity: serviceerror.SeverityWarning, Action: serviceerror.ActionNone,
		})
		return nil
	}
	var addrs []string
	for _, host := range f.alias.hosts {
		addrs = append(addrs, net.JoinHostPort(host, strconv.Itoa(f.alias.port)))
	}
	return addrs
}

// aliasConflict says who on this machine has the alias's port, "" for nobody that
// we know of (BR-94).
func (f *facades) aliasConflict(own engine.Engine, port int) string {
	alias := f.alias.port
	switch {
	case alias == port:
		return "the facade itself"
	case alias >= discovery.PortNodeInfo && alias <= discovery.PortLast:
		return "this node's own services"
	}
	for _, e := range engine.All() {
		if alias == e.BasePort {
			return e.DisplayName + " itself"
		}
		if e.ID != own.ID && (alias == e.FacadePort || alias == f.savedPort(e)) {
			return e.DisplayName + "'s facade"
		}
		for _, m := range f.b.manifests.attached(e.ID) {
			p := m.port()
			if p == alias {
				return "an engine of a manifest"
			}
		}
	}
	return ""
}

// lowerUnheldAlias takes the warning back where no alias is wanted.
func (f *facades) lowerUnheldAlias(ctx context.Context, e engine.Engine) {
	if e.Aliases && (f.alias.port == 0 || !f.managed(ctx)) {
		f.b.funnel.lower(facade.AliasBlocked)
	}
}
