// SPDX-License-Identifier: Apache-2.0

package clustertrust

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// ErrNotClustered means that this node is no member of a cluster, and so trusts
// nobody.
var ErrNotClustered = errors.New("this node is in no cluster")

// ErrNotPinned means that this node has not pinned the peer that is to be asked.
var ErrNotPinned = errors.New("the node is not paired with this one")

// StrangerError says that a certificate is no member's.
type StrangerError struct {
	Principal   string // as the certificate has it; a claim
	Fingerprint string
}

func (e *StrangerError) Error() string {
	return fmt.Sprintf("not a pinned cluster peer: %q, %s", e.Principal, e.Fingerprint)
}

var errNoCertificate = errors.New("the peer shows no certificate")

// Caller returns the member at the other end of a connection to a server (SEC-12):
// call it for each request, before the body is read. The error is ErrNotClustered, a
// *StrangerError, or that there is no certificate.
func (v *View) Caller(conn *tls.ConnectionState) (principal string, err error) {
	state := v.Refresh()
	if conn == nil || len(conn.PeerCertificates) == 0 {
		return "", errNoCertificate
	}
	return state.member(conn.PeerCertificates[0])
}

// Server returns the configuration of a listener for members (SEC-11): it takes any
// certificate, for Caller to judge. While the node is no member, handshakes fail
// (SEC-15).
func (v *View) Server() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS12,
		ClientAuth:             tls.RequireAnyClientCert,
		SessionTicketsDisabled: true,
		NextProtos:             []string{"http/1.1"},
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return v.own() },
	}
}

// Client returns the configuration for connections to one peer. Its handshakes fail
// with ErrNotClustered, ErrNotPinned or a *StrangerError; without a pin do not dial
// at all.
func (v *View) Client(principal string) *tls.Config {
	return v.client(func(s *State, cert *x509.Certificate) error {
		if !s.Trusts(principal) {
			return ErrNotPinned
		}
		shown, err := s.member(cert)
		if err == nil && shown != principal {
			return &StrangerError{Principal: shown, Fingerprint: Fingerprint(cert)}
		}
		return err
	})
}

// AnyMember returns the configuration for connections to a peer of which only the
// address is known.
func (v *View) AnyMember() *tls.Config {
	return v.client(func(s *State, cert *x509.Certificate) error {
		_, err := s.member(cert)
		return err
	})
}

// client has accept judge the server's certificate by the directory as it is at the
// handshake. There is no session cache: each handshake is a full one, and
// VerifyConnection would run on a resumed one too (SEC-13, SEC-14).
func (v *View) client(accept func(*State, *x509.Certificate) error) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // no names and no authorities: VerifyConnection compares with the pin
		NextProtos:         []string{"http/1.1"},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return v.own()
		},
		VerifyConnection: func(conn tls.ConnectionState) error {
			state := v.Refresh()
			switch {
			case !state.Clustered():
				return ErrNotClustered
			case len(conn.PeerCertificates) == 0:
				return errNoCertificate
			}
			return accept(state, conn.PeerCertificates[0])
		},
	}
}

// own is this node's certificate while it is a member.
func (v *View) own() (*tls.Certificate, error) {
	state := v.Refresh()
	if !state.Clustered() {
		return nil, ErrNotClustered
	}
	return &state.leaf.pair, nil
}
