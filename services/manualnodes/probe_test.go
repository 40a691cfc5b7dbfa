// SPDX-License-Identifier: Apache-2.0

package manualnodes

import (
	"context"
	"encoding/pem"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	wire "nvpair/shared/manualnodes"
)

// machine serves on a loopback address and returns its port.
func machine(t *testing.T, address string, handler http.HandlerFunc) int {
	t.Helper()
	ln, err := net.Listen("tcp", address+":0")
	require.NoError(t, err)
	server := &httptest.Server{Listener: ln, Config: &http.Server{Handler: handler}}
	server.Start()
	t.Cleanup(server.Close)
	return ln.Addr().(*net.TCPAddr).Port
}

func probeOf(t *testing.T, cfg Config, e saved) wire.Status {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	p, err := newProber(t.Context(), cfg)
	require.NoError(t, err)
	st := statusOf(e)
	f := p.probe(t.Context(), st, false, ownUUID)
	f.into(&st)
	return st
}

func TestAnEngineOfThisMachineCountsOnlyAtAPortOfItsOwn(t *testing.T) {
	port := machine(t, "127.0.0.7", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/tags" {
			_, _ = w.Write([]byte(`{"models":[{"name":"m"}]}`))
		}
	})
	closed := machine(t, "127.0.0.7", http.NotFound)
	st := probeOf(t, Config{}, saved{ID: "a", Address: "127.0.0.7", Ports: &wire.Ports{Ollama: port, LMStudio: closed, NodeInfo: closed}})
	require.True(t, st.Local && st.OllamaUp)
	require.NotEqual(t, errSelf, st.Error)
	require.Equal(t, []string{"m"}, st.OllamaModels)

	f := findings{local: true, ollama: engineAnswer{up: true}}
	f.settle(wire.Status{})
	require.False(t, f.ollama.up)
	require.Equal(t, errSelf, f.err)
}

func TestOnlyAnOllamaCountsAsOne(t *testing.T) {
	for _, tt := range []struct {
		root, tags string
		up         bool
	}{
		{greeting, "", true},
		{greeting + "\n", `{"models":null}`, true},
		{"", `{"models":[]}`, true},
		{"<html>", `{"models":[{"name":"m"}]}`, true},
		{"", "", false},
		{"<html>", "<html>", false},
		{"<html>" + greeting, `{"models":null}`, false},
		{"<html>", `{"models":"m"}`, false},
		{"<html>", `[]`, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(t, map[string]string{"h:11434/": tt.root, "h:1234/v1/models": `{"data":[]}`})
			if tt.tags != "" {
				n.set("h:11434/api/tags", tt.tags)
			}
			c := start(t, newDir(t), n)
			_, st := c.add(`{"address":"h"}`)
			require.Equal(t, tt.up, st.OllamaUp, "%+v", tt)
			require.True(t, st.LMStudioUp)
			require.Empty(t, st.Error, "nobody said that there is an Ollama")
			c.stop()
		})
	}
}

func TestAnEngineWhosePortWasGivenIsMissed(t *testing.T) {
	for _, tt := range []struct{ ports, drop, want string }{
		{`{"lmstudio":1234}`, "h:1234/v1/models", "LM Studio at port 1234: connection refused"},
		{`{"ollama":11434}`, "h:11434/", "Ollama at port 11434: it answers with status 404"},
		{`{"ollama":11434}`, "h:1234/v1/models", ""},
		{`{"lmstudio":1234}`, "h:11434/", ""},
		{`{"node_info":5}`, "h:11434/", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(t, both("h"))
			c := start(t, newDir(t), n)
			_, st := c.add(`{"address":"h","ports":` + tt.ports + `}`)
			require.Empty(t, st.Error)
			n.drop(tt.drop)
			st = c.event("node/updated")
			require.True(t, st.OllamaUp != st.LMStudioUp)
			require.Equal(t, tt.want, st.Error, "%+v", tt)
			<-time.After(time.Minute)
			c.Quiet() // the node answers, so nothing is reported
			c.stop()
		})
	}
}

func TestAnswersAreBounded(t *testing.T) {
	long := `{"models":[{"name":"` + strings.Repeat("x", maxBodyBytes) + `"}]}`
	many := `{"data":[` + strings.Repeat(`{"id":"0123456789"},`, 5000) + `{"id":"x"}]}`
	port := machine(t, "127.0.0.8", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			_, _ = w.Write([]byte(greeting))
		case "/api/tags":
			_, _ = w.Write([]byte(long))
		case "/v1/models":
			_, _ = w.Write([]byte(many))
		case "/v1/node-info":
			_, _ = w.Write([]byte(`{"GPUs":[{"name":"` + strings.Repeat("x", maxInfoBytes) + `"}],"cpu":{},"memory":5}`))
		}
	})
	st := probeOf(t, Config{}, saved{ID: "a", Address: "127.0.0.8", Ports: &wire.Ports{Ollama: port, LMStudio: port, NodeInfo: port}})
	require.True(t, st.OllamaUp && st.LMStudioUp && st.NodeInfoUp)
	require.Empty(t, st.OllamaModels)
	require.Len(t, st.LMStudioModels, maxModels)
	require.Nil(t, st.GPUs)
	require.Nil(t, st.CPU)
	require.Nil(t, st.Memory)
}

func TestARedirectIsNotFollowed(t *testing.T) {
	port := machine(t, "127.0.0.9", func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/else") {
			t.Errorf("asked for %s", r.URL.Path)
		}
		http.Redirect(w, r, "/else"+r.URL.Path, http.StatusFound)
	})
	st := probeOf(t, Config{}, saved{ID: "a", Address: "127.0.0.9", Ports: &wire.Ports{Ollama: port, LMStudio: port, NodeInfo: port}})
	require.False(t, reachable(&st))
	require.Contains(t, st.Error, "it answers with status 302")
}

func TestNodeInfoIsAskedOverTLSWhereThereIsAPortForIt(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(`{"hostUuid":"` + uuid + `"}`))
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	_, portText, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	port, err := strconv.Atoi(portText)
	require.NoError(t, err)
	e := saved{ID: "a", Address: "127.0.0.1", TLSPort: port, Ports: &wire.Ports{Ollama: port, LMStudio: port}}
	require.False(t, probeOf(t, Config{}, e).NodeInfoUp, "nobody vouches for it")

	bundle := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	st := probeOf(t, Config{CABundle: bundle}, e)
	require.True(t, st.NodeInfoUp && st.Peer, st.Error)
	require.Equal(t, uuid, st.HostUUID)
}

// The test server's certificate is one of example.com.
func TestACertificateIsOneOfTheNameThatWasGiven(t *testing.T) { // MN-23
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"hostUuid":"` + uuid + `"}`))
	}))
	defer server.Close()
	bundle := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	for name, want := range map[string]bool{"example.com": true, "another.example": false} {
		st := probeOf(t, Config{
			CABundle: bundle,
			Lookup: func(context.Context, string) ([]netip.Addr, error) {
				return []netip.Addr{netip.MustParseAddr("192.0.2.7")}, nil
			},
			Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
			},
		}, saved{ID: "a", Address: name, TLSPort: 443, Ports: &wire.Ports{Ollama: 1, LMStudio: 1}})
		require.Equal(t, want, st.NodeInfoUp, "%s: %s", name, st.Error)
	}
}

func TestUnusableFilesOfTheFlagsAreFatal(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for _, cfg := range []Config{
		{ClientCert: empty}, {ClientKey: empty}, {ClientCert: empty, ClientKey: empty},
		{CABundle: empty}, {CABundle: empty + ".missing"},
	} {
		_, err := newProber(t.Context(), cfg)
		require.ErrorContains(t, err, "--c", "%+v", cfg)
	}
}
