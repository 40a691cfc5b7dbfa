// SPDX-License-Identifier: Apache-2.0

package proxy

import "net"

// serveIngress is the peers' side of a facade's port: connections whose first byte
// begins a TLS handshake arrive here. It returns when the listener is closed.
//
// This is the seam for clusters: before one exists nobody is pinned, so every
// handshake is refused. A member's server authorises each request by its
// certificate, lets inference and reads through to the own engine, and nothing
// further (PX-39 to PX-41, DEC-101).
func (f *facadeServer) serveIngress(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		_ = conn.Close()
	}
}
