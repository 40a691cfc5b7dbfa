// SPDX-License-Identifier: Apache-2.0

package manualnodes

import (
	"net"
	"net/http"
	"net/url"
	"testing"
)

// FuzzAddress: an address that is taken is the host that is asked, whole, and
// nothing else of the request.
func FuzzAddress(f *testing.F) {
	for _, seed := range []string{"10.0.0.5", "desk.local", "fe80::1%eth0", "[fd00::1]", "::ffff:1.2.3.4", "a:1", "http://a", "a/b", "a@b",
		"a b", "a%2fb", "büro", "日本", "a\x00", "a?b", "a#b", "-", "fe80::1%25x", "fe80::1%a/b", "::1%a b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, typed string) {
		address := cleanAddress(typed)
		if checkAddress(address) != nil || address == "" {
			return
		}
		u := url.URL{Scheme: "http", Host: net.JoinHostPort(address, "11434"), Path: "/api/tags"}
		req, err := http.NewRequest(http.MethodGet, u.String(), nil)
		if err != nil {
			return // told as such (prober.get)
		}
		if req.URL.Hostname() != address || req.URL.Port() != "11434" || req.URL.Path != "/api/tags" || req.URL.RawQuery != "" || req.URL.Fragment != "" {
			t.Errorf("%q is asked as %s", address, req.URL)
		}
	})
}
