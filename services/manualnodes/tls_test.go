// SPDX-License-Identifier: Apache-2.0

package manualnodes

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/internal/clustertrust"
	"nvpair/internal/clustertrust/clustertest"
	wire "nvpair/shared/manualnodes"
)

// memberInfo serves the node-info of a member to members alone.
func memberInfo(t *testing.T, m *clustertest.Member) (port int) {
	t.Helper()
	trust := clustertrust.Open(m.Dir, slog.New(slog.DiscardHandler))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := trust.Caller(r.TLS); err != nil {
				http.Error(w, err.Error(), http.StatusForbidden)
				return
			}
			_, _ = io.WriteString(w, `{"GPUs":[],"telemetryValid":false,"msSince":0,"hostUuid":"`+m.UUID+`"}`)
		}),
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(tls.NewListener(ln, trust.Server())) }()
	t.Cleanup(func() { _ = server.Close(); <-ended })
	return ln.Addr().(*net.TCPAddr).Port
}

func TestAMemberAsksMembersByTheirPinnedCertificates(t *testing.T) { // MN-24
	self, peer, stranger := clustertest.New(t), clustertest.New(t), clustertest.New(t)
	clustertest.Pair(self, peer)
	self.Admit("c1", 1)
	stranger.Pin(self)
	answers := func(port int) bool {
		e := saved{ID: "a", Address: "127.0.0.1", TLSPort: port, Ports: &wire.Ports{Ollama: port, LMStudio: port}}
		return probeOf(t, Config{ClusterDir: self.Dir}, e).NodeInfoUp
	}
	port := memberInfo(t, peer)
	require.True(t, answers(port))
	require.False(t, answers(memberInfo(t, stranger)), "it is not pinned here")
	self.Unpin(peer)
	require.False(t, answers(port), "it is no member any more")
}
