// SPDX-License-Identifier: Apache-2.0

package nodeinfo

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	wire "nvpair/shared/nodeinfo"
)

// dial connects to the worker.
func (c *client) dial() net.Conn {
	c.t.Helper()
	conn, err := net.Dial("tcp", "127.0.0.1:"+c.port())
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = conn.Close() })
	require.NoError(c.t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	return conn
}

const request = "GET /v1/node-info HTTP/1.1\r\nHost: x\r\n\r\n"

// ask sends a request on a connection and requires its answer.
func ask(t *testing.T, conn net.Conn) {
	t.Helper()
	_, err := io.WriteString(conn, request)
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)
	require.Contains(t, body(t, resp.Body), nodeID)
}

func TestGarbageAndOverlongHeadersAreRefused(t *testing.T) {
	c := start(t, desk(), nil)
	for _, tt := range []struct{ send, want string }{
		{"\x16\x03\x01\x00\x05hello\r\n\r\n", "HTTP/1.1 400 "},
		{"GARBAGE\r\n\r\n", "HTTP/1.1 400 "},
		{"GET /v1/node-info HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
		{"GET /v1/node-info HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 32<<10) + "\r\n\r\n", "HTTP/1.1 431 "},
		{"GET /v1/node-info HTTP/9.9\r\nHost: x\r\n\r\n", "HTTP/1.1 505 "},
	} {
		conn := c.dial()
		go func() { _, _ = io.WriteString(conn, tt.send) }() // it may be refused before its end
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil { // reset, with bytes of ours unread
			require.ErrorContains(t, err, "reset")
			continue
		}
		require.True(t, strings.HasPrefix(line, tt.want), "%.40q: %q", tt.send, line)
	}
	ask(t, c.dial())
	require.NoError(t, c.stop())
}

func TestSlowHeadersAreCutOffAndDelayNobody(t *testing.T) {
	t.Parallel() // it takes headerTimeout
	c := start(t, desk(), nil)
	slow := c.dial()
	_, err := io.WriteString(slow, "GET /v1/node-info HTTP/1.1\r\nHo")
	require.NoError(t, err)
	begin := time.Now()
	ask(t, c.dial())
	require.Less(t, time.Since(begin), headerTimeout)
	_, err = io.Copy(io.Discard, slow)
	require.NoError(t, err, "closed, maybe with an answer")
	require.InDelta(t, headerTimeout.Seconds(), time.Since(begin).Seconds(), 2)
	require.NoError(t, c.stop())
}

// TestManyConnectionsAtOnceAreAllAnswered: more than the bound, each of which
// asks, is answered and stays.
func TestManyConnectionsAtOnceAreAllAnswered(t *testing.T) {
	c := start(t, desk(), nil)
	port := c.port()
	var wg sync.WaitGroup
	for range maxPerSource + 256 {
		conn := c.dial()
		wg.Go(func() {
			_, err := io.WriteString(conn, request)
			if err == nil {
				_, err = http.ReadResponse(bufio.NewReader(conn), nil)
			}
			if err != nil {
				t.Errorf("ask at port %s: %v", port, err)
			}
		})
	}
	wg.Wait()
	ask(t, c.dial())
	require.NoError(t, c.stop())
}

// TestConnectionsThatOnlyStandThereKeepNobodyOut fills the gate with what never
// asks.
func TestConnectionsThatOnlyStandThereKeepNobodyOut(t *testing.T) {
	c := start(t, desk(), nil)
	for range maxPerSource + 50 {
		c.dial()
	}
	begin := time.Now()
	ask(t, c.dial())
	require.Less(t, time.Since(begin), time.Second)
	require.NoError(t, c.stop())
}

func TestHTTPSTakesThePlaceOfHTTP(t *testing.T) {
	p := newPair(t)
	for _, tt := range []struct {
		name       string
		ca, http   bool
		clientCert bool
		served     bool
	}{
		{"certificate of the server alone", false, false, false, true},
		{"HTTP beside it", false, true, false, true},
		{"client certificate missing", true, false, false, false},
		{"client certificate", true, false, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := start(t, desk(), func(cfg *Config) {
				cfg.Listeners = Listeners{Cert: p.cert, Key: p.key, AcceptHTTP: tt.http}
				if tt.ca {
					cfg.Listeners.ClientCA = p.cert
				}
			})
			client := &tls.Config{RootCAs: p.pool}
			if tt.clientCert {
				client.Certificates = []tls.Certificate{p.tls}
			}
			transport := &http.Transport{TLSClientConfig: client, DisableKeepAlives: true}
			resp, err := (&http.Client{Transport: transport}).Get("https://127.0.0.1:" + c.portOf("tls=true") + wire.Path)
			require.Equal(t, tt.served, err == nil, "%v", err)
			if err == nil {
				require.Contains(t, body(t, resp.Body), nodeID)
			}
			client.MaxVersion = tls.VersionTLS11
			_, err = (&http.Client{Transport: transport}).Get("https://127.0.0.1:" + c.portOf("tls=true") + wire.Path)
			require.Error(t, err)
			if tt.http {
				resp, err := (&http.Client{Transport: transport}).Get("http://127.0.0.1:" + c.portOf("tls=false") + wire.Path)
				require.NoError(t, err)
				require.Contains(t, body(t, resp.Body), nodeID)
			} else {
				require.NotContains(t, c.log.String(), "tls=false")
			}
			require.NoError(t, c.stop())
		})
	}
}
