// SPDX-License-Identifier: Apache-2.0

package nodeinfo

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"nvpair/internal/applog/applogtest"
	"nvpair/internal/worker"
	"nvpair/internal/worker/workertest"
	"nvpair/services/nodeinfo/hardware"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	nodeID = "11111111-2222-3333-4444-555555555555"
	gib    = 1 << 30
)

// fakeMachine is a machine as a test describes it.
type fakeMachine struct {
	host hardware.Host

	mu       sync.Mutex // guards the rest
	adapters []hardware.Adapter
	load     hardware.Load
	looked   []time.Time // when Adapters was called
	sampled  []time.Time // when Load was called
	hang     chan struct{}
}

func (m *fakeMachine) Host() hardware.Host { return m.host }

func (m *fakeMachine) Adapters(context.Context) []hardware.Adapter {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.looked = append(m.looked, time.Now())
	return m.adapters
}

func (m *fakeMachine) Load(context.Context) hardware.Load {
	m.mu.Lock()
	m.sampled = append(m.sampled, time.Now())
	load, hang := m.load, m.hang
	m.load.Changed = false
	m.mu.Unlock()
	if hang != nil {
		<-hang
	}
	return load
}

func (m *fakeMachine) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// desk is a machine with a graphics card.
func desk() *fakeMachine {
	return &fakeMachine{
		host:     hardware.Host{CPU: "Fast CPU", Cores: 8, MemoryTotal: 64 * gib},
		adapters: []hardware.Adapter{{Key: "GPU-1", Name: "Big Card", Total: 24 * gib}},
		load: hardware.Load{CPUPct: 12, MemoryUsed: 10 * gib,
			GPUs: map[string]hardware.Reading{"GPU-1": {Used: gib, UsePct: 37, UseKnown: true}}},
	}
}

// client is the broker's end of the link of a running worker.
type client struct {
	*workertest.Peer
	t   *testing.T
	log *applogtest.Buffer
}

// start runs the worker and reads the frame that announces it.
func start(t *testing.T, m Machine, change func(*Config)) *client {
	t.Helper()
	return greet(t, launch(t, m, change))
}

func launch(t *testing.T, m Machine, change func(*Config)) *workertest.Peer {
	t.Helper()
	return workertest.Launch(t, name, func(ctx context.Context, common worker.Config) error {
		cfg := Config{Config: common, NodeID: nodeID, Machine: m}
		if change != nil {
			change(&cfg)
		}
		return Run(ctx, cfg)
	})
}

// startService runs a service of which a test runs what it wants, and reads the
// frame that announces it.
func startService(t *testing.T, run func(context.Context, *service) error) *client {
	t.Helper()
	return greet(t, workertest.Launch(t, name, func(ctx context.Context, common worker.Config) error {
		collector := newCollector(desk())
		collector.prepare(ctx)
		return run(ctx, newService(Config{Config: common}, nodeID, collector, nil))
	}))
}

func greet(t *testing.T, p *workertest.Peer) *client {
	t.Helper()
	p.Expect(workertest.Hello)
	return &client{Peer: p, t: t, log: p.Log}
}

func (c *client) stop() error { return c.Stop() }

func encode(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

// body reads a body to its end and closes it.
func body(t *testing.T, r io.ReadCloser) string {
	t.Helper()
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	return string(b)
}

// pair is a self-signed certificate for 127.0.0.1 that serves as an authority too.
type pair struct {
	cert, key string // PEM files
	tls       tls.Certificate
	pool      *x509.CertPool
}

func newPair(t *testing.T) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	dir := t.TempDir()
	p := pair{cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem"), pool: x509.NewCertPool()}
	require.NoError(t, os.WriteFile(p.cert, certPEM, 0o600))
	require.NoError(t, os.WriteFile(p.key, keyPEM, 0o600))
	p.tls, err = tls.X509KeyPair(certPEM, keyPEM)
	require.NoError(t, err)
	require.True(t, p.pool.AppendCertsFromPEM(certPEM))
	return p
}
