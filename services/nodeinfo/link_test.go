// SPDX-License-Identifier: Apache-2.0

package nodeinfo

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/worker"
	wire "nvpair/shared/nodeinfo"
)

// port returns the port on which the worker says it serves HTTP.
func (c *client) port() string { c.t.Helper(); return c.portOf("tls=false") }

func (c *client) portOf(kind string) string {
	c.t.Helper()
	line := regexp.MustCompile(`INFO serving /v1/node-info on port (\d+) ` + kind)
	var match []string
	require.Eventually(c.t, func() bool {
		match = line.FindStringSubmatch(c.log.String())
		return match != nil
	}, 20*time.Second, time.Millisecond, "%s", c.log)
	return match[1]
}

// get asks the route, each time on a new connection.
func (c *client) get() string {
	c.t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport, Timeout: 20 * time.Second}).Get("http://127.0.0.1:" + c.port() + wire.Path)
	require.NoError(c.t, err)
	require.Equal(c.t, 200, resp.StatusCode)
	return body(c.t, resp.Body)
}

// TestTheBrokersPushesAreInTheNextAnswer: see NI-16, NI-18 and MN-40.
func TestTheBrokersPushesAreInTheNextAnswer(t *testing.T) {
	c := start(t, desk(), nil)
	last := func() string { // the part behind the age of the sample
		_, rest, _ := strings.Cut(c.get(), `"hostUuid":"`+nodeID+`"`)
		return rest
	}
	require.Equal(t, "}", last(), "unknown is absent")
	const identity, services = "nodeinfo:set-cluster-identity", "nodeinfo:set-services"
	for _, tt := range []struct{ method, params, want string }{
		{identity, `{"clusterUuid":""}`, `,"clusterUuid":""}`},
		{identity, `{"clusterUuid":"c-1","more":1}`, `,"clusterUuid":"c-1"}`},
		{identity, "", `,"clusterUuid":"c-1"}`},
		{identity, "null", `,"clusterUuid":"c-1"}`},
		{identity, "{}", `,"clusterUuid":"c-1"}`},
		{identity, `{"clusterUuid":null}`, `,"clusterUuid":"c-1"}`},
		{identity, `{"clusterUuid":5}`, `,"clusterUuid":"c-1"}`},
		{identity, `["c-2"]`, `,"clusterUuid":"c-1"}`},
		{identity, `{"clusterUuid":"` + strings.Repeat("x", 200) + `"}`, `,"clusterUuid":"c-1"}`},
		{"nodeinfo:no-such-method", `{"clusterUuid":"c-2"}`, `,"clusterUuid":"c-1"}`},
		{services, `{"services":{"ol":11434,"ni":14318}}`, `,"clusterUuid":"c-1","services":{"ni":14318,"ol":11434}}`},
		{services, `{"services":{"ni":0}}`, `,"clusterUuid":"c-1","services":{"ni":14318,"ol":11434}}`},
		{services, `{"services":null}`, `,"clusterUuid":"c-1","services":{"ni":14318,"ol":11434}}`},
		{services, `{"services":["ni"]}`, `,"clusterUuid":"c-1","services":{"ni":14318,"ol":11434}}`},
		{services, `{"services":{}}`, `,"clusterUuid":"c-1","services":{}}`},
		{identity, `{"clusterUuid":""}`, `,"clusterUuid":"","services":{}}`},
	} {
		c.Notify(tt.method, tt.params)
		c.Quiet() // it has been handled
		require.Equal(t, tt.want, last(), "%s %s", tt.method, tt.params)
	}
	c.Send(`{"jsonrpc":"2.0","id":7,"method":"` + identity + `","params":{"clusterUuid":"c-3"}}`)
	require.Contains(t, c.Next(), `"error":{"code":-32601`)
	require.Equal(t, `,"clusterUuid":"","services":{}}`, last())
	require.NoError(t, c.stop())
	require.Contains(t, c.log.String(), "WARN notification dropped method=nodeinfo:set-cluster-identity err=")
	require.NotContains(t, c.log.String(), "c-1", "only whether there is one is logged")
}

// TestObservedAddressesAreReportedUnasked: see NI-21.
func TestObservedAddressesAreReportedUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *service
		c := startService(t, func(ctx context.Context, running *service) error {
			s = running
			return s.run(ctx, nil)
		})
		begin := time.Now()
		c.Expect(`{"jsonrpc":"2.0","method":"nodeinfo:observed-addresses","params":{"addresses":[]}}`)
		require.Equal(t, reportEvery, time.Since(begin))
		s.observer.see(endpoints{local: "10.0.0.4:1", remote: "10.0.0.5:1"})
		c.Expect(`{"jsonrpc":"2.0","method":"nodeinfo:observed-addresses","params":{"addresses":["10.0.0.4"]}}`)
		require.Equal(t, 2*reportEvery, time.Since(begin))
		require.NoError(t, c.stop())
	})
}

func TestAHardwareThatHangsDoesNotHoldTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		c := startService(t, func(ctx context.Context, s *service) error {
			s.collector.machine.(*fakeMachine).hang = hang
			return s.run(ctx, nil)
		})
		<-time.After(5 * time.Second)
		begin := time.Now()
		require.NoError(t, c.stop())
		require.LessOrEqual(t, time.Since(begin), stopWithin+time.Second)
		require.Contains(t, c.log.String(), "hardware does not answer")
		close(hang)
	})
}

func TestBadFlagsAndTakenPortsEndTheProcessWithAMessage(t *testing.T) {
	ln, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	defer ln.Close()
	taken := ln.Addr().(*net.TCPAddr).Port
	dir := t.TempDir()
	notPEM := filepath.Join(dir, "x.pem")
	require.NoError(t, os.WriteFile(notPEM, []byte("x"), 0o600))
	pair := newPair(t)
	for _, tt := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Listeners.Port = taken }, fmt.Sprintf("bind port %d: ", taken)},
		{func(c *Config) { c.Listeners.Port = 65536 }, "--port 65536"},
		{func(c *Config) { c.Listeners.TLSPort = -1 }, "--tls-port -1"},
		{func(c *Config) { c.Listeners.Cert = pair.cert }, "--cert and --key go together"},
		{func(c *Config) { c.Listeners.Key = pair.key }, "--cert and --key go together"},
		{func(c *Config) { c.Listeners.ClientCA = pair.cert }, "--client-ca needs --cert and --key"},
		{func(c *Config) { c.Listeners = Listeners{Cert: notPEM, Key: pair.key} }, "load --cert and --key: "},
		{func(c *Config) { c.Listeners = Listeners{Cert: pair.cert, Key: pair.key, ClientCA: notPEM} }, "load --client-ca: no certificate in "},
		{func(c *Config) { c.Listeners = Listeners{Cert: pair.cert, Key: pair.key, ClientCA: notPEM + "x"} }, "load --client-ca: open "},
		{func(c *Config) { c.Listeners = Listeners{Cert: pair.cert, Key: pair.key, TLSPort: taken} }, fmt.Sprintf("bind port %d: ", taken)},
		{func(c *Config) {
			c.Listeners = Listeners{Cert: pair.cert, Key: pair.key, AcceptHTTP: true, Port: taken}
		}, fmt.Sprintf("bind port %d: ", taken)},
		{func(c *Config) { c.ClusterDir, c.Listeners.Port = dir, taken }, fmt.Sprintf("bind port %d: ", taken)},
	} {
		p := launch(t, desk(), tt.change)
		p.Closed() // without a frame
		require.ErrorContains(t, p.Wait(), tt.want)
	}
}

// TestTheIdentityIsThatOfTheFlagOrOfTheDirectory: see DI-100.
func TestTheIdentityIsThatOfTheFlagOrOfTheDirectory(t *testing.T) {
	base := filepath.Join(t.TempDir(), "data")
	t.Setenv("NVPAIR_DATA_DIR", base)
	verbatim, err := (&Config{NodeID: "Verbatim"}).identity()
	require.NoError(t, err)
	require.Equal(t, "Verbatim", verbatim)
	require.NoDirExists(t, base)
	own, err := (&Config{}).identity()
	require.NoError(t, err)
	again, err := (&Config{ClusterDir: filepath.Join(base, "cluster") + "/"}).identity()
	require.NoError(t, err)
	require.Equal(t, own, again)
	other, err := (&Config{ClusterDir: filepath.Join(t.TempDir(), "b", "cluster")}).identity()
	require.NoError(t, err)
	require.NotEqual(t, own, other)
}

func TestTheStartIsLogged(t *testing.T) {
	c := start(t, desk(), nil)
	c.port()
	require.NoError(t, c.stop())
	require.Contains(t, c.log.String(), `INFO hardware found gpus=1 names="[\"Big Card\"]" cpu="Fast CPU" cores=8 memoryBytes=68719476736`)
}

func TestTheRealMachineIsRead(t *testing.T) {
	c := start(t, nil, nil)
	require.Contains(t, c.get(), `"telemetryValid":`)
	require.NoError(t, c.stop())
}

func TestTheEndOfTheContextEndsTheWorker(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	listeners, err := Listeners{}.open(ctx)
	require.NoError(t, err)
	c := startService(t, func(_ context.Context, s *service) error { return s.run(ctx, listeners) })
	cancel()
	require.NoError(t, c.Wait())
}

// TestAListenerThatFailsEndsTheWorker: see NI-4.
func TestAListenerThatFailsEndsTheWorker(t *testing.T) {
	listeners, err := Listeners{}.open(t.Context())
	require.NoError(t, err)
	c := startService(t, func(ctx context.Context, s *service) error { return s.run(ctx, listeners) })
	c.port()
	require.NoError(t, listeners[0].Close())
	require.ErrorContains(t, c.Wait(), "serve [::]:")
}

func TestFlagsAreThoseOfTheContract(t *testing.T) {
	var out, diagnostics strings.Builder
	code := Main([]string{"--help"}, "1.2.3", worker.Streams{In: strings.NewReader(""), Out: &out, Err: &diagnostics})
	require.Zero(t, code)
	for _, flag := range []string{"port", "tls-port", "cert", "key", "client-ca", "accept-http", "cluster-dir", "node-id",
		"log-level", "version"} {
		require.Regexp(t, `(?m)^  -`+flag+`\b`, diagnostics.String())
	}
	require.Contains(t, diagnostics.String(), "(default 14318)")
}
