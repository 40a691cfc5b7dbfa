// SPDX-License-Identifier: Apache-2.0

package manualnodes

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// tlsConfig is how nodes with a tls_port are asked (MN-23). Nodes of a cluster,
// which are known by pinned certificates (MN-24), come with the cluster.
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
