// SPDX-License-Identifier: Apache-2.0

package nodeinfo

import (
	"bufio"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/internal/clustertrust"
	"nvpair/internal/clustertrust/clustertest"
)

// answer is what a caller gets: the status and the body, or why there is none.
func (c *client) answer(secured *tls.Config) (status int, text string, err error) {
	c.t.Helper()
	var conn net.Conn = c.dial()
	if secured != nil {
		conn = tls.Client(conn, secured)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		return 0, "", err
	}
	return readAnswer(c.t, conn)
}

func readAnswer(t *testing.T, conn net.Conn) (status int, text string, err error) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, "", err
	}
	return resp.StatusCode, body(t, resp.Body), nil
}

func asMember(m *clustertest.Member) *tls.Config {
	return clustertrust.Open(m.Dir, slog.New(slog.DiscardHandler)).AnyMember()
}

// TestTheInventoryIsKeptToTheCluster: see NI-25.
func TestTheInventoryIsKeptToTheCluster(t *testing.T) {
	self, peer, stranger := clustertest.New(t), clustertest.New(t), clustertest.New(t)
	peer.Pin(self)
	stranger.Pin(self)
	c := start(t, desk(), func(cfg *Config) { cfg.ClusterDir = self.Dir })

	status, text, err := c.answer(nil)
	require.NoError(t, err)
	require.Equal(t, 200, status)
	require.Contains(t, text, `"clusterUuid":""`)
	_, _, err = c.answer(asMember(peer))
	require.Error(t, err, "there is nobody to shake hands with")
	kept := c.dial()
	ask(t, kept)

	self.Pin(peer) // joins
	_, err = io.WriteString(kept, request)
	require.NoError(t, err)
	status, _, err = readAnswer(t, kept)
	require.NoError(t, err)
	require.Equal(t, 403, status, "on the connection that stands, too")
	status, text, err = c.answer(nil)
	require.NoError(t, err)
	require.Equal(t, 403, status)
	require.Equal(t, "forbidden: not a pinned cluster peer\n", text)
	status, text, err = c.answer(asMember(peer))
	require.NoError(t, err)
	require.Equal(t, 200, status)
	require.Contains(t, text, `"clusterUuid":"`+self.UUID+`"`)
	status, _, err = c.answer(asMember(self))
	require.NoError(t, err)
	require.Equal(t, 200, status)
	status, text, err = c.answer(asMember(stranger))
	require.NoError(t, err)
	require.Equal(t, 403, status)
	require.NotContains(t, text, "GPUs")

	self.Unpin(peer) // leaves
	status, _, err = c.answer(nil)
	require.NoError(t, err)
	require.Equal(t, 200, status)
	require.NoError(t, c.stop())
}

// TestAMembershipThatCannotBeReadOpensNothing: only who is known to be in no cluster is
// open to all.
func TestAMembershipThatCannotBeReadOpensNothing(t *testing.T) {
	self := clustertest.New(t)
	admission := filepath.Join(self.Dir, "admission.json")
	require.NoError(t, os.Mkdir(admission, 0o700)) // cannot be read as a file
	c := start(t, desk(), func(cfg *Config) { cfg.ClusterDir = self.Dir })

	status, text, err := c.answer(nil)
	require.NoError(t, err)
	require.Equal(t, 403, status)
	require.NotContains(t, text, "GPUs")

	require.NoError(t, os.Remove(admission))
	status, _, err = c.answer(nil)
	require.NoError(t, err)
	require.Equal(t, 200, status)

	require.NoError(t, os.Mkdir(admission, 0o700))
	status, _, err = c.answer(nil)
	require.NoError(t, err)
	require.Equal(t, 403, status, "that there was none before is not that there is none")
	require.NoError(t, c.stop())
}
