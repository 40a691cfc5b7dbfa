// SPDX-License-Identifier: Apache-2.0

package clustertrust_test

import (
	"crypto/tls"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"nvpair/internal/clustertrust"
	"nvpair/internal/clustertrust/clustertest"
)

// shake lets a client and a server meet, and returns what each made of it.
func shake(t *testing.T, client, server *tls.Config) (caller tls.ConnectionState, clientErr, serverErr error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0") // a pipe has no buffers: two alerts would wait for each other
	require.NoError(t, err)
	near, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	far, err := ln.Accept()
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	served := make(chan error, 1)
	s := tls.Server(far, server)
	go func() {
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte{1})
		}
		_ = far.Close()
		served <- err
	}()
	c := tls.Client(near, client)
	if clientErr = c.Handshake(); clientErr == nil {
		_, clientErr = c.Read(make([]byte, 1)) // in TLS 1.3 the server's refusal comes after the handshake
	}
	_ = near.Close()
	serverErr = <-served
	return s.ConnectionState(), clientErr, serverErr
}

func TestMembersMeetAndKnowEachOther(t *testing.T) {
	a, b := clustertest.New(t), clustertest.New(t)
	clustertest.Pair(a, b)
	for name, client := range map[string]*tls.Config{"known peer": open(a).Client(b.UUID), "any member": open(a).AnyMember()} {
		server := open(b)
		conn, clientErr, serverErr := shake(t, client, server.Server())
		require.NoError(t, clientErr, name)
		require.NoError(t, serverErr, name)
		caller, err := server.Caller(&conn)
		require.NoError(t, err, name)
		require.Equal(t, a.UUID, caller, name)
	}
}

func TestANodeMeetsItself(t *testing.T) {
	a := clustertest.New(t)
	a.Admit("c1", 1)
	v := open(a)
	conn, clientErr, _ := shake(t, v.Client(a.UUID), v.Server())
	require.NoError(t, clientErr)
	caller, err := v.Caller(&conn)
	require.NoError(t, err)
	require.Equal(t, a.UUID, caller)
}

func TestAStrangerIsToldApart(t *testing.T) {
	a, b, stranger := clustertest.New(t), clustertest.New(t), clustertest.New(t)
	clustertest.Pair(a, b)
	stranger.Pin(b) // one side alone is no pairing
	server := open(b)
	conn, clientErr, serverErr := shake(t, open(stranger).Client(b.UUID), server.Server())
	require.NoError(t, clientErr)
	require.NoError(t, serverErr) // it is for Caller to answer, so that the caller learns why
	_, err := server.Caller(&conn)
	var refused *clustertrust.StrangerError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, stranger.UUID, refused.Principal)
	require.Equal(t, clustertrust.Fingerprint(stranger.Cert), refused.Fingerprint)

	_, clientErr, _ = shake(t, open(a).AnyMember(), &tls.Config{Certificates: []tls.Certificate{stranger.KeyPair()}, ClientAuth: tls.RequestClientCert})
	require.ErrorAs(t, clientErr, &refused)
}

func TestAClientAcceptsOnlyThePeerItWasFor(t *testing.T) {
	a, b, c := clustertest.New(t), clustertest.New(t), clustertest.New(t)
	clustertest.Pair(a, b, c)
	_, clientErr, _ := shake(t, open(a).Client(b.UUID), open(c).Server())
	var refused *clustertrust.StrangerError
	require.ErrorAs(t, clientErr, &refused)
	_, clientErr, _ = shake(t, open(a).Client("somebody"), open(c).Server())
	require.ErrorIs(t, clientErr, clustertrust.ErrNotPinned)
}

func TestACertificateWithTheSameNameIsNotEnough(t *testing.T) {
	a, b := clustertest.New(t), clustertest.New(t)
	clustertest.Pair(a, b)
	v := open(a)
	b.Renew() // the same node, another key, and nobody pinned that
	_, clientErr, _ := shake(t, v.Client(b.UUID), open(b).Server())
	var refused *clustertrust.StrangerError
	require.ErrorAs(t, clientErr, &refused)
}

func TestARemovedPinCountsAtTheNextHandshakeAndTheNextRequest(t *testing.T) {
	a, b := clustertest.New(t), clustertest.New(t)
	clustertest.Pair(a, b)
	b.Admit("c1", 1)
	client, server := open(a).Client(b.UUID), open(b)
	conn, clientErr, _ := shake(t, client, server.Server())
	require.NoError(t, clientErr)
	b.Unpin(a)
	_, err := server.Caller(&conn) // on the connection that stands
	require.Error(t, err)
	a.Unpin(b)
	_, clientErr, _ = shake(t, client, server.Server())
	require.ErrorIs(t, clientErr, clustertrust.ErrNotClustered)
}

func TestWhoIsNoMemberShakesNoHands(t *testing.T) {
	a, b := clustertest.New(t), clustertest.New(t)
	a.Pin(b)
	_, clientErr, serverErr := shake(t, open(a).Client(b.UUID), open(b).Server())
	require.Error(t, clientErr)
	require.ErrorIs(t, serverErr, clustertrust.ErrNotClustered)
	_, err := open(b).Caller(nil)
	require.Error(t, err)
}
