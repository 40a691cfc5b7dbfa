// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// allowedHeaders is what Ollama's preflight allows: neither x-api-key nor
// anthropic-version.
const allowedHeaders = "Authorization,Content-Type,User-Agent,Accept,X-Requested-With,Openai-Beta,X-Stainless-Arch," +
	"X-Stainless-Async,X-Stainless-Custom-Poll-Interval,X-Stainless-Helper-Method,X-Stainless-Lang,X-Stainless-Os," +
	"X-Stainless-Package-Version,X-Stainless-Poll-Helper,X-Stainless-Retry-Count,X-Stainless-Runtime," +
	"X-Stainless-Runtime-Version,X-Stainless-Timeout"

// crossOrigin applies Ollama's rules for a request with an Origin, and reports
// whether that was the answer.
func (o *ollama) crossOrigin(x *exchange, methods map[string]handler) bool {
	origin := x.header("Origin")
	if origin == "" || ownOrigin(origin, x.header("Host")) {
		return false
	}
	preflight := x.method == "OPTIONS"
	if !o.allowedOrigin(origin) {
		if preflight && methods != nil {
			x.set("Allow", allow(methods))
		}
		x.empty(403)
		return true
	}
	all := slices.Contains(o.e.cfg.Origins, "*")
	if preflight {
		x.set("Access-Control-Allow-Headers", allowedHeaders)
		x.set("Access-Control-Allow-Methods", "GET,POST,PUT,PATCH,DELETE,HEAD,OPTIONS")
	}
	if all {
		x.set("Access-Control-Allow-Origin", "*")
	} else {
		x.set("Access-Control-Allow-Origin", origin)
	}
	if preflight {
		x.set("Access-Control-Max-Age", "43200")
		if methods != nil {
			x.set("Allow", allow(methods))
		}
	}
	if !all {
		x.set("Vary", "Origin")
	}
	if !preflight {
		return false
	}
	if !all {
		x.set("Vary", "Access-Control-Request-Method")
		x.set("Vary", "Access-Control-Request-Headers")
	}
	x.empty(204)
	return true
}

func ownOrigin(origin, host string) bool {
	return origin == "http://"+host || origin == "https://"+host
}

// allowedOrigin knows local pages, desktop programs, and what was configured.
func (o *ollama) allowedOrigin(origin string) bool {
	if slices.Contains(o.e.cfg.Origins, "*") || slices.Contains(o.e.cfg.Origins, origin) {
		return true
	}
	for _, scheme := range []string{"app://", "file://", "tauri://", "vscode-webview://", "vscode-file://"} {
		if strings.HasPrefix(origin, scheme) {
			return true
		}
	}
	_, host, ok := strings.Cut(origin, "://")
	if !ok || !strings.HasPrefix(origin, "http://") && !strings.HasPrefix(origin, "https://") {
		return false
	}
	host, _, _ = strings.Cut(host, ":")
	return host == "localhost" || host == "127.0.0.1" || host == "0.0.0.0"
}

// allowedHost is the check Ollama makes when it is bound to loopback.
func (o *ollama) allowedHost(host string) bool {
	if host == "" {
		return true
	}
	if tcp, ok := o.e.addr.(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
		return true
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if ip, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return ip.IsLoopback() || ip.IsPrivate() || ip.IsUnspecified()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" {
		return true
	}
	for _, suffix := range []string{".localhost", ".local", ".internal"} {
		if strings.HasSuffix(host, suffix) {
			return true
		}
	}
	name, err := os.Hostname()
	return err == nil && strings.EqualFold(host, name)
}
