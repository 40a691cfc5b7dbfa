// SPDX-License-Identifier: Apache-2.0

package nodeinfo

import (
	"context"
	"crypto/tls"
	"net/http"

	"nvpair/internal/clustertrust"
	"nvpair/internal/splitlisten"
)

// openGated binds the one port of a node that keeps its inventory to its cluster's
// members: TLS for them, plain HTTP for everybody while it is in no cluster (NI-25).
func openGated(ctx context.Context, port int, trust *clustertrust.View) ([]listener, error) {
	ln, err := listen(ctx, "--port", port)
	if err != nil {
		return nil, err
	}
	split := splitlisten.New(ln)
	return []listener{{Listener: split.Plain(), pump: split.Serve}, {Listener: split.TLS(), secured: trust.Server()}}, nil
}

// members lets a request pass by the membership as it is now. So a node that joins
// closes its inventory in place, and one that leaves opens it again. A membership that
// cannot be read closes it, too.
func members(trust *clustertrust.View, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !admitted(trust, req.TLS) {
			http.Error(w, "forbidden: not a pinned cluster peer", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, req)
	})
}

func admitted(trust *clustertrust.View, conn *tls.ConnectionState) bool {
	if conn == nil {
		state := trust.Refresh()
		return !state.Clustered() && !state.Unsure()
	}
	_, err := trust.Caller(conn)
	return err == nil
}
