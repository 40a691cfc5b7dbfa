// SPDX-License-Identifier: Apache-2.0

package clustertrust_test

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"

	"nvpair/internal/clustertrust"
)

// A server for members alone: the handshake takes any certificate, so that a
// stranger is told why it is refused.
func Example() {
	trust := clustertrust.Open("", slog.New(slog.DiscardHandler)) // no directory: never a member
	server := http.Server{
		TLSConfig: trust.Server(),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			peer, err := trust.Caller(r.TLS)
			if err != nil {
				http.Error(w, "forbidden: not a pinned cluster peer", http.StatusForbidden)
				return
			}
			fmt.Fprintln(w, "welcome", peer)
		}),
	}
	_, err := server.TLSConfig.GetCertificate(&tls.ClientHelloInfo{})
	fmt.Println(err)
	// Output: this node is in no cluster
}
