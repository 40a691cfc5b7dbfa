// SPDX-License-Identifier: Apache-2.0

package errors

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"
)

const (
	maxHandshakes    = 64              // connections at a time
	handshakeTimeout = 5 * time.Second // of one handshake, from accept on

	// Pauses after a failed accept, doubling (SEC-21).
	firstAcceptPause = 5 * time.Millisecond
	lastAcceptPause  = time.Second
)

// errNoCluster ends every handshake: without a cluster nobody is a peer (DEC-125).
var errNoCluster = errors.New("this node is in no cluster")

// refuseAll takes over ln and refuses everyone: a TLS handshake ends with an alert,
// plain bytes with a closed connection (EP-1). It returns when ctx has ended and
// all connections are closed.
func refuseAll(ctx context.Context, ln net.Listener, log *slog.Logger) {
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })()
	var handshakes sync.WaitGroup
	defer handshakes.Wait()
	slots := make(chan struct{}, maxHandshakes) // one place a connection
	pause := firstAcceptPause
	for {
		conn, err := ln.Accept()
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			closeIfOpen(conn)
			return
		}
		if err != nil {
			log.Warn("accept failed", "addr", ln.Addr().String(), "err", err)
			wait(ctx, pause)
			pause = min(2*pause, lastAcceptPause)
			continue
		}
		pause = firstAcceptPause
		select {
		case slots <- struct{}{}:
			handshakes.Go(func() {
				refuse(ctx, conn, log)
				<-slots
			})
		default:
			_ = conn.Close()
		}
	}
}

// refuse answers one connection and closes it.
func refuse(ctx context.Context, conn net.Conn, log *slog.Logger) {
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	err := tls.Server(conn, &tls.Config{
		MinVersion:         tls.VersionTLS12, // SEC-10
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, errNoCluster },
	}).HandshakeContext(ctx) // the end of ctx closes the connection
	log.Debug("peer refused", "addr", conn.RemoteAddr().String(), "err", err)
}

func closeIfOpen(conn net.Conn) {
	if conn != nil {
		_ = conn.Close()
	}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
