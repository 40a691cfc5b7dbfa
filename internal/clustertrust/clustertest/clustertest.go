// SPDX-License-Identifier: Apache-2.0

// Package clustertest makes cluster directories for tests, as the cluster manager
// writes them.
package clustertest

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io/fs"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
)

// Member is a node's cluster directory.
type Member struct {
	UUID string // the node's, and its principal
	Dir  string // <base>/cluster
	Cert *x509.Certificate

	t       testing.TB
	certPEM string
	keyPEM  []byte
}

// New makes the directory of a node with an identity, which is in no cluster yet.
func New(t testing.TB) *Member {
	t.Helper()
	base := filepath.Join(t.TempDir(), "node") // of which, unlike the test's own directory, nobody else reads
	return NewAt(t, filepath.Join(base, "cluster"))
}

// NewAt is New in a directory that is given.
func NewAt(t testing.TB, dir string) *Member {
	t.Helper()
	m := &Member{UUID: uuid.NewString(), Dir: dir, t: t}
	m.must(os.MkdirAll(filepath.Join(m.Dir, "trusted"), 0o700))
	m.Renew()
	m.write("identity.json", m.json(map[string]any{"node_uuid": m.UUID, "created_at": time.Now().UnixMilli()}))
	return m
}

// Renew gives the node another key.
func (m *Member) Renew() {
	m.t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	m.must(err)
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: m.UUID},
		URIs:         []*url.URL{{Scheme: "urn", Opaque: "nvpair:node:" + m.UUID}},
		NotBefore:    now.Add(-time.Hour), NotAfter: now.AddDate(2, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	m.must(err)
	m.Cert, err = x509.ParseCertificate(der)
	m.must(err)
	key, err := x509.MarshalPKCS8PrivateKey(private)
	m.must(err)
	m.certPEM = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	m.keyPEM = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	m.write("node.key", m.keyPEM)
	m.write("node.crt", []byte(m.certPEM))
}

// Pair makes nodes pin each other.
func Pair(members ...*Member) {
	for _, m := range members {
		for _, other := range members {
			if m != other {
				m.Pin(other)
			}
		}
	}
}

// Pin makes the node trust another.
func (m *Member) Pin(other *Member) {
	m.t.Helper()
	m.write(filepath.Join("trusted", other.UUID+".json"), m.json(map[string]any{"nodeUuid": other.UUID, "certPem": other.certPEM}))
}

// Unpin undoes Pin.
func (m *Member) Unpin(other *Member) {
	m.t.Helper()
	m.must(os.Remove(filepath.Join(m.Dir, "trusted", other.UUID+".json")))
}

// Admit makes the node a member of a cluster, with or without others.
func (m *Member) Admit(clusterID string, epoch uint64) {
	m.t.Helper()
	m.write("admission.json", m.json(map[string]any{"counter": epoch, "activated": epoch, "clusterId": clusterID, "epoch": epoch}))
}

// Age makes everything in the directory old, so that a view takes it as settled, but
// for the files named.
func (m *Member) Age(except ...string) {
	m.t.Helper()
	old := time.Now().Add(-time.Hour)
	m.must(filepath.WalkDir(m.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || slices.Contains(except, d.Name()) {
			return err
		}
		return os.Chtimes(path, old, old)
	}))
}

// KeyPair returns the node's key and certificate, for a peer that a test plays itself.
func (m *Member) KeyPair() tls.Certificate {
	m.t.Helper()
	pair, err := tls.X509KeyPair([]byte(m.certPEM), m.keyPEM)
	m.must(err)
	return pair
}

// write replaces a file by a rename, as the cluster manager does (F-1).
func (m *Member) write(name string, data []byte) {
	m.t.Helper()
	path := filepath.Join(m.Dir, name)
	m.must(os.WriteFile(path+".tmp", data, 0o600))
	m.must(os.Rename(path+".tmp", path))
}

func (m *Member) json(v any) []byte {
	raw, err := json.Marshal(v)
	m.must(err)
	return raw
}

func (m *Member) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}
