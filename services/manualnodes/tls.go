// SPDX-License-Identifier: Apache-2.0

package manualnodes

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"

	"nvpair/internal/clustertrust"
)

// dialTLS connects to nodes with a tls_port: while this node is a member of a cluster
// to its members alone, of which an address names none (MN-24), else to whoever
// secure accepts (MN-23).
func dialTLS(dial dialer, secure *tls.Config, trust *clustertrust.View) dialer {
	member := trust.AnyMember()
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		config := member
		if state := trust.Refresh(); !state.Clustered() && !state.Unsure() {
			config = secure.Clone()
			config.ServerName, _, _ = net.SplitHostPort(addr) // the transport's addresses have a port
		}
		secured := tls.Client(conn, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return secured, nil
	}
}

// tlsConfig is what the flags say of TLS.
func tlsConfig(cfg Config) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if (cfg.ClientCert == "") != (cfg.ClientKey == "") {
		return nil, errors.New("--client-cert and --client-key come together")
	}
	if cfg.ClientCert != "" {
		pair, err := tls.LoadX509KeyPair(cfg.ClientCert, cfg.ClientKey)
		if err != nil {
			return nil, fmt.Errorf("--client-cert and --client-key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if cfg.CABundle != "" {
		pem, err := os.ReadFile(cfg.CABundle)
		if err != nil {
			return nil, fmt.Errorf("--ca-bundle: %w", err)
		}
		if c.RootCAs, err = x509.SystemCertPool(); err != nil {
			c.RootCAs = x509.NewCertPool()
		}
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--ca-bundle: no certificate in %s", cfg.CABundle)
		}
	}
	return c, nil
}
