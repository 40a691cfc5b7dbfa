// SPDX-License-Identifier: Apache-2.0

package clustertrust

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strings"
)

// State is what a cluster directory said at one moment. It does not change. The zero
// State is that of a node that is no member.
type State struct {
	// ClusterID and Epoch are the node's admission; empty and 0 without one.
	ClusterID string
	Epoch     uint64

	leaf    *identity // nil until a key pair was loaded
	pins    map[string]*x509.Certificate
	leaving bool // a teardown is pending
	doubts  doubts
}

// doubts are the parts that could not be read, so that they are as they were before.
type doubts struct {
	leaf, admission, leaving bool
	list, pins               bool // which pins there are, and what some of them hold
}

// identity is this node's key pair.
type identity struct {
	principal string
	cert      *x509.Certificate
	pair      tls.Certificate
}

// Clustered reports whether the node is a member of a cluster.
func (s *State) Clustered() bool {
	return s.leaf != nil && !s.leaving && (s.ClusterID != "" || len(s.pins) > 0)
}

// Unsure reports whether the node may be a member although Clustered says no, for
// something could not be read. Whoever is open to all while the node is in no cluster
// stays closed then.
func (s *State) Unsure() bool {
	d := s.doubts
	return !s.Clustered() && (s.leaf != nil || d.leaf) && (!s.leaving || d.leaving) &&
		(s.ClusterID != "" || len(s.pins) > 0 || d.admission || d.list || d.pins)
}

// Self returns the node's principal while it is a member, else "".
func (s *State) Self() string {
	if !s.Clustered() {
		return ""
	}
	return s.leaf.principal
}

// Trusts reports whether a principal is a member: it is pinned, or it is this node
// (SEC-17).
func (s *State) Trusts(principal string) bool { return s.certificate(principal) != nil }

// Peers returns the principals of the other members, sorted; none while the node is
// no member itself.
func (s *State) Peers() []string {
	if !s.Clustered() {
		return nil
	}
	return slices.Sorted(maps.Keys(s.pins))
}

// certificate returns the only one that a principal may show, nil for a stranger.
func (s *State) certificate(principal string) *x509.Certificate {
	switch {
	case principal == "" || !s.Clustered():
		return nil
	case principal == s.leaf.principal:
		return s.leaf.cert
	}
	return s.pins[principal]
}

// member returns the principal that shows a certificate, if it is a member's.
func (s *State) member(cert *x509.Certificate) (principal string, err error) {
	principal = Principal(cert)
	if !s.Clustered() {
		return principal, ErrNotClustered
	}
	if known := s.certificate(principal); known == nil || !bytes.Equal(known.Raw, cert.Raw) {
		return principal, &StrangerError{Principal: principal, Fingerprint: Fingerprint(cert)}
	}
	return principal, nil
}

func (s *State) equal(other *State) bool {
	return s.ClusterID == other.ClusterID && s.Epoch == other.Epoch && s.leaving == other.leaving && s.doubts == other.doubts &&
		sameIdentity(s.leaf, other.leaf) &&
		maps.EqualFunc(s.pins, other.pins, func(a, b *x509.Certificate) bool { return bytes.Equal(a.Raw, b.Raw) })
}

func sameIdentity(a, b *identity) bool {
	if a == nil || b == nil {
		return a == b
	}
	return bytes.Equal(a.cert.Raw, b.cert.Raw)
}

// principalPrefix heads the URI name of a certificate that holds its node's uuid.
const principalPrefix = "urn:nvpair:node:"

// Principal returns the node that a certificate is for: the rest of its first URI
// name with our prefix, else its common name (CLI-8).
func Principal(cert *x509.Certificate) string {
	for _, uri := range cert.URIs {
		if id, ours := strings.CutPrefix(uri.String(), principalPrefix); ours {
			return id
		}
	}
	return cert.Subject.CommonName
}

// Fingerprint is for people and logs (CLI-9); trust compares whole certificates.
func Fingerprint(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// keyPair reads this node's own key and certificate.
func keyPair(certPEM, keyPEM []byte) (*identity, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	cert := pair.Leaf
	if _, ok := pair.PrivateKey.(ed25519.PrivateKey); !ok {
		return nil, errors.New("the key is not an Ed25519 key") // CLI-10
	}
	principal := Principal(cert)
	if principal == "" {
		return nil, errors.New("the certificate names no node")
	}
	return &identity{principal: principal, cert: cert, pair: pair}, nil
}
