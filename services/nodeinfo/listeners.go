// SPDX-License-Identifier: Apache-2.0

package nodeinfo

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	wire "nvpair/shared/nodeinfo"
)

const (
	defaultTLSPort = 14319

	headerTimeout  = 5 * time.Second   // NI-7
	requestTimeout = 10 * time.Second  // of a request with its body, which nobody reads
	answerTimeout  = 5 * time.Second   // from the end of the header to the end of the answer
	idleTimeout    = 105 * time.Second // longer than the callers keep theirs, which is 90 s
	maxHeaderBytes = 4 << 10           // net/http adds 4 KiB
)

// Listeners says where the route is served: over HTTP, or with Cert over HTTPS.
type Listeners struct {
	Port       int // for HTTP, on all interfaces; 0 is any free one
	TLSPort    int // for HTTPS, likewise
	Cert, Key  string
	ClientCA   string // client certificates are required if it is given
	AcceptHTTP bool   // HTTP beside HTTPS; without Cert it changes nothing
}

// listener is a bound port, or a part of one; secured is nil for plain HTTP.
type listener struct {
	net.Listener
	secured *tls.Config
	pump    func() error // must run for the port to accept, until it is closed; nil where nothing must
}

func (l Listeners) check() error {
	switch {
	case (l.Cert == "") != (l.Key == ""):
		return errors.New("--cert and --key go together: give both or neither")
	case l.ClientCA != "" && l.Cert == "":
		return errors.New("--client-ca needs --cert and --key")
	case l.Port < 0 || l.Port > 65535:
		return fmt.Errorf("--port %d is not in 0..65535", l.Port)
	case l.TLSPort < 0 || l.TLSPort > 65535:
		return fmt.Errorf("--tls-port %d is not in 0..65535", l.TLSPort)
	}
	return nil
}

// open binds the ports, all or none.
func (l Listeners) open(ctx context.Context) ([]listener, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	if l.Cert == "" {
		ln, err := listen(ctx, "--port", l.Port)
		if err != nil {
			return nil, err
		}
		return []listener{{Listener: ln}}, nil
	}
	secured, err := l.tlsConfig()
	if err != nil {
		return nil, err
	}
	ln, err := listen(ctx, "--tls-port", l.TLSPort)
	if err != nil {
		return nil, err
	}
	open := []listener{{Listener: ln, secured: secured}}
	if l.AcceptHTTP {
		plain, err := listen(ctx, "--port", l.Port)
		if err != nil {
			_ = ln.Close()
			return nil, err
		}
		open = append(open, listener{Listener: plain})
	}
	return open, nil
}

func listen(ctx context.Context, flag string, port int) (net.Listener, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", fmt.Sprintf(":%d", port)) // IPv4 and IPv6
	if err != nil {
		return nil, fmt.Errorf("bind port %d: %w; free it or choose another with %s", port, err, flag)
	}
	return ln, nil
}

func (l Listeners) tlsConfig() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(l.Cert, l.Key)
	if err != nil {
		return nil, fmt.Errorf("load --cert and --key: %w", err)
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}}
	if l.ClientCA == "" {
		return cfg, nil
	}
	pem, err := os.ReadFile(l.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("load --client-ca: %w", err)
	}
	cfg.ClientCAs = x509.NewCertPool()
	if !cfg.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("load --client-ca: no certificate in %s", l.ClientCA)
	}
	cfg.ClientAuth = tls.RequireAndVerifyClientCert
	return cfg, nil
}

// serve answers on a listener until ctx ends, and returns when no connection is
// left. The error is that of a listener that cannot go on.
func (s *service) serve(ctx context.Context, l listener) error {
	gate := newGate(l.Listener)
	var ln net.Listener = gate // below TLS, so that an unfinished handshake counts
	if l.secured != nil {
		ln = tls.NewListener(gate, l.secured)
	}
	server := s.server(gate)
	stopped := make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(stopped)
		shutDown(server)
	})
	s.log.Info(fmt.Sprintf("serving %s on port %d", wire.Path, l.Addr().(*net.TCPAddr).Port), "tls", l.secured != nil)
	err := server.Serve(ln)
	if !unwatch() {
		<-stopped
		return nil
	}
	shutDown(server)
	return fmt.Errorf("serve %s: %w", l.Addr(), err)
}

func (s *service) server(gate *gate) *http.Server {
	return &http.Server{
		Handler:                      s.handler,
		DisableGeneralOptionsHandler: true, // the route takes any method, and there is nothing else
		ReadHeaderTimeout:            headerTimeout,
		ReadTimeout:                  requestTimeout,
		WriteTimeout:                 answerTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		ErrorLog:                     slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // strangers' doings
		ConnState: func(conn net.Conn, state http.ConnState) {
			gate.moved(conn, state)
			if state == http.StateActive {
				s.observer.see(conn)
			}
		},
	}
}

// shutDown lets answers under way end, for as long as there is.
func shutDown(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		_ = server.Close()
	}
}
