// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/mdns/mdnstest"
	"nvpair/internal/worker"
	"nvpair/internal/worker/workertest"
	"nvpair/shared/discovery"
)

const (
	ok     = `{"result":{"ok":true}}`
	uuid   = "11111111-2222-4333-8444-555555555555"
	other  = "99999999-2222-4333-8444-555555555555"
	bubble = 946684800 // Unix seconds at which a synctest bubble starts
)

// host is a machine whose addresses a test may change.
type host struct {
	mu  sync.Mutex // guards the rest; the worker asks from two goroutines
	ips []string
	err error
}

func (h *host) set(err error, ips ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ips, h.err = ips, err
}

func (h *host) addresses() ([]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ips, h.err
}

// newConfig returns the configuration of a node with a saved identity.
func newConfig(t *testing.T, h *host) Config {
	t.Helper()
	base := filepath.Join(t.TempDir(), "base")
	require.NoError(t, os.Mkdir(base, 0o700))
	saveIdentity(t, filepath.Join(base, "node-id.json"), uuid)
	return Config{
		ClusterDir: filepath.Join(base, "cluster") + string(filepath.Separator),
		Hostname:   "host.example.",
		Addresses:  h.addresses,
		Network:    mdnstest.New().Host(),
		Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("connection refused")
		},
	}
}

func saveIdentity(t *testing.T, path, id string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(`{"node_uuid":"`+id+`","created_at":1}`), 0o600))
}

func TestOwnEntryFollowsTheRegistrations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, newConfig(t, &host{ips: []string{"192.168.1.5", "10.0.0.7"}}))
		c.Play("self.frames", nil)
		require.NoError(t, c.Stop())
	})
}

func TestBadParamsChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, newConfig(t, &host{}))
		c.Next() // discovered
		bad := []struct{ method, params string }{
			{"register", `[]`},
			{"register", `null`},
			{"register", `{"service":1,"port":1}`},
			{"register", `{"service":"ol","port":"1"}`},
			{"register", `{"service":"ol","port":1.5}`},
			{"register", `{"service":"ol","port":-1}`},
			{"register", `{"service":"ol","port":65536}`},
			{"register", `{"service":"ol","port":1,"txt":{"a":1}}`},
			{"register", `{"service":"` + strings.Repeat("x", 33) + `","port":1}`},
			{"register", `{"service":"a=b","port":1}`},
			{"register", `{"service":"a b","port":1}`},
			{"register", `{"service":"ö","port":1}`},
			{"register", `{"service":"uuid","port":1}`}, // DI-101
			{"register", `{"service":"IP","port":1}`},
			{"update-txt", `{"service":"ol","port":65536}`},
			{"unregister", `"ol"`},
			{"unregister", `{"service":7}`},
			{"set-observed-addresses", `{"addresses":"10.0.0.1"}`},
			{"set-observed-addresses", `{"addresses":[1]}`},
			{"set-observed-addresses", `[]`},
			{"node-activity", `{"hostUuid":1}`},
			{"node-activity", `{"hostUuid":"x","msSince":"1"}`},
			{"node-activity", `7`},
		}
		for _, tt := range bad {
			answer := c.Call("discovery:"+tt.method, tt.params)
			require.Contains(t, answer, `{"error":{"code":-32602,"message":"invalid params: `, "%s %s", tt.method, tt.params)
			c.Notify("discovery:"+tt.method, tt.params)
		}
		c.Send(`{"jsonrpc":"2.0","id":7,"method":"discovery:register"}`)
		require.Contains(t, c.Next(), `"code":-32602`)
		c.Quiet()
		require.Contains(t, c.Call("discovery:get-nodes", `null`), `"services":{}`)
		require.NoError(t, c.Stop())
		require.Equal(t, len(bad), strings.Count(c.Log.String(), "WARN notification dropped"))
	})
}

func TestUnknownMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, newConfig(t, &host{}))
		c.Next() // discovered
		for _, method := range []string{"discovery:no-such-method", "discovery:nodes", "errors:report"} {
			require.JSONEq(t, `{"error":{"code":-32601,"message":"method not found: `+method+`"}}`, c.Call(method, `{}`))
			c.Notify(method, `{}`)
		}
		c.Quiet()
		require.JSONEq(t, `{"result":{"level":"debug"}}`, c.Call("log/set-level", `{"level":"Debug"}`))
		require.JSONEq(t, `{"result":null}`, c.Call("shutdown", `null`))
		require.NoError(t, c.Wait())
	})
}

func TestRegistrationsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, newConfig(t, &host{}))
		c.Next() // discovered
		for i := range maxServices {
			require.JSONEq(t, ok, c.Call("discovery:register", fmt.Sprintf(`{"service":"s%d","port":1}`, i)))
			require.Len(t, c.event("discovery:node-updated").Services, i+1)
		}
		require.JSONEq(t, `{"error":{"code":-32000,"message":"too many services are registered"}}`,
			c.Call("discovery:register", `{"service":"new","port":1}`))
		require.JSONEq(t, ok, c.Call("discovery:register", `{"service":"s0","port":2}`)) // known
		require.Equal(t, 2, c.event("discovery:node-updated").Services["s0"].Port)
		require.JSONEq(t, ok, c.Call("discovery:unregister", `{"service":"s0"}`))
		c.Next()
		require.JSONEq(t, ok, c.Call("discovery:register", `{"service":"new","port":1}`))
		c.Next()
		c.Quiet()
		require.NoError(t, c.Stop())
	})
}

func TestLastSeenIsTheTimeOfTheLastChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, newConfig(t, &host{}))
		require.EqualValues(t, bubble, c.event("discovery:node-discovered").LastSeenSeconds)
		<-time.After(40 * time.Second)
		require.Contains(t, c.Call("discovery:get-nodes", `{}`), fmt.Sprintf(`"lastSeen":%d`, bubble))
		require.JSONEq(t, ok, c.Call("discovery:register", `{"service":"ol","port":1}`))
		require.EqualValues(t, bubble+40, c.event("discovery:node-updated").LastSeenSeconds)
		require.NoError(t, c.Stop())
	})
}

func TestAddressesAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &host{}
		c := start(t, newConfig(t, h))
		node := c.event("discovery:node-discovered")
		require.Equal(t, []string{"127.0.0.1"}, node.IPs) // DI-76
		require.Equal(t, "127.0.0.1", node.IP)

		h.set(nil, "10.0.0.1", "10.0.0.2")
		node = c.event("discovery:node-updated") // by the sweep
		require.Equal(t, []string{"10.0.0.1", "10.0.0.2"}, node.IPs)
		require.EqualValues(t, bubble+15, node.LastSeenSeconds)

		h.set(nil, "10.0.0.2", "10.0.0.1") // DI-28: the order counts
		require.JSONEq(t, ok, c.Call("discovery:reload-identity", `null`))
		node = c.event("discovery:node-updated")
		require.Equal(t, "10.0.0.2", node.IP)
		require.EqualValues(t, bubble+15, node.LastSeenSeconds) // at once, not by the next sweep

		h.set(errors.New("no answer"), "10.0.0.3")
		<-time.After(40 * time.Second)
		c.Quiet() // the last good ones stay

		h.set(nil)
		require.Equal(t, "127.0.0.1", c.event("discovery:node-updated").IP) // DI-27
		require.NoError(t, c.Stop())
	})
}

func TestRunWaitsForItsSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := newConfig(t, &host{})
		var calls, ended atomic.Int32
		swept := make(chan struct{})
		cfg.Addresses = func() ([]string, error) {
			if calls.Add(1) == 2 { // the first is at start
				close(swept)
				<-time.After(time.Second)
			}
			ended.Add(1)
			return nil, nil
		}
		c := start(t, cfg)
		c.Next() // discovered
		<-swept
		require.NoError(t, c.Stop())
		require.EqualValues(t, 2, ended.Load())
	})
}

func TestChangedIdentityMovesTheEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := newConfig(t, &host{})
		c := start(t, cfg)
		c.Next() // discovered
		require.JSONEq(t, ok, c.Call("discovery:register", `{"service":"ol","port":1}`))
		c.Next()

		saveIdentity(t, filepath.Join(cfg.ClusterDir, "identity.json"), other)
		require.JSONEq(t, ok, c.Call("discovery:reload-identity", `{}`))
		c.Expect(`{"jsonrpc":"2.0","method":"discovery:node-removed","params":` +
			`{"node":{"hostUuid":"` + uuid + `","name":"host.example"}}}`)
		node := c.event("discovery:node-discovered")
		require.Equal(t, other, node.HostUUID)
		require.Equal(t, 1, node.Services["ol"].Port)
		require.Contains(t, c.Call("discovery:get-nodes", `{}`), other)

		require.JSONEq(t, ok, c.Call("discovery:reload-identity", `{}`))
		c.Quiet() // unchanged now

		require.NoError(t, os.WriteFile(filepath.Join(cfg.ClusterDir, "identity.json"), []byte("{"), 0o600))
		require.Contains(t, c.Call("discovery:reload-identity", `{}`), `"code":-32000`)
		c.Notify("discovery:reload-identity", `{}`)
		c.Quiet()
		require.Contains(t, c.Call("discovery:get-nodes", `{}`), other)
		require.NoError(t, c.Stop())
	})
}

// TestChangesBeforeTheFirstEventNeedNoEvent: the first event shows them.
func TestChangesBeforeTheFirstEventNeedNoEvent(t *testing.T) {
	var methods []string
	var last any
	e := newSelfEntry(uuid, "h", func(method string, params any) { methods, last = append(methods, method), params })
	require.True(t, e.register("ol", 1))
	require.True(t, e.setIdentity(other))
	require.True(t, e.setAddresses([]string{"10.0.0.1"}))
	require.Empty(t, methods)
	e.announce()
	require.Equal(t, []string{"discovery:node-discovered"}, methods)
	first := last.(discovery.NodeEvent).Node
	require.Equal(t, other, first.HostUUID)
	require.Equal(t, 1, first.Services["ol"].Port)
	require.Equal(t, "10.0.0.1", first.IP)
	require.True(t, e.unregister("ol"))
	require.Equal(t, []string{"discovery:node-discovered", "discovery:node-updated"}, methods)
}

func TestIdentityIsMintedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := newConfig(t, &host{})
		require.NoError(t, os.Remove(filepath.Join(filepath.Dir(filepath.Clean(cfg.ClusterDir)), "node-id.json")))
		c := start(t, cfg)
		first := c.event("discovery:node-discovered").HostUUID
		require.Len(t, first, 36)
		require.NoError(t, c.Stop())

		c = start(t, cfg)
		require.Equal(t, first, c.event("discovery:node-discovered").HostUUID)
		require.NoError(t, c.Stop())
	})
}

// TestDamagedIdentityIsFatal: see DEC-122.
func TestDamagedIdentityIsFatal(t *testing.T) {
	cfg := newConfig(t, &host{})
	path := filepath.Join(filepath.Dir(filepath.Clean(cfg.ClusterDir)), "node-id.json")
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	p := workertest.Launch(t, "nvpair-node-scanner", with(cfg))
	p.Closed() // without a frame
	require.ErrorContains(t, p.Wait(), path)
	require.FileExists(t, path)
}

func TestNameIsTheTrimmedHostname(t *testing.T) {
	for in, want := range map[string]string{"a": "a", ".a.b..": "a.b", "..": "unknown"} {
		require.Equal(t, want, name(in))
	}
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Equal(t, strings.Trim(host, "."), name(""))
}

func TestIdentityLiesBesideTheClusterDirectory(t *testing.T) {
	t.Setenv("NVPAIR_DATA_DIR", filepath.Join(t.TempDir(), "data"))
	for in, want := range map[string]string{
		"":                            os.Getenv("NVPAIR_DATA_DIR"),
		filepath.FromSlash("a/b/"):    "a",
		filepath.FromSlash("a/b"):     "a",
		filepath.FromSlash("cluster"): ".",
	} {
		base, err := baseDir(in)
		require.NoError(t, err)
		require.Equal(t, want, base)
	}
}

func TestCommandLine(t *testing.T) {
	t.Setenv("NVPAIR_DATA_DIR", t.TempDir()) // its mode depends on the umask, so nothing is minted here
	for _, tt := range []struct {
		args []string
		code int
		out  string
	}{
		{[]string{"--version"}, 0, "1.2.3\n"},
		{[]string{"--client-cert", "x"}, 2, ""}, // not yet
		{[]string{"extra"}, 2, ""},
	} {
		var out, errs bytes.Buffer
		code := Main(tt.args, "1.2.3", worker.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		require.Equal(t, tt.code, code, "%q: %s", tt.args, errs.String())
		require.Equal(t, tt.out, out.String())
	}
}

func TestBrokersCommandLineIsAccepted(t *testing.T) {
	cfg := newConfig(t, &host{})
	var out, errs bytes.Buffer
	code := Main([]string{"--log-level", "warn", "--cluster-dir", cfg.ClusterDir}, "1.2.3",
		worker.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	require.Equal(t, 0, code, errs.String())
	lines := strings.Split(out.String(), "\n")
	require.Contains(t, lines[0], `"ready"`)
	require.Contains(t, lines[1], `"worker/hello"`)
	require.Contains(t, lines[2], `"discovery:node-discovered"`)
	require.Contains(t, lines[2], uuid)
}
