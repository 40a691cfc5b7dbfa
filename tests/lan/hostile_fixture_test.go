// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lan

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"nvpair/internal/mdns"
	"nvpair/tests/harness"
)

// attacker is a machine at 192.168.7.66 that says what it likes. It speaks through sockets of the test.
type attacker struct {
	*harness.Host
	t      *testing.T
	bridge *harness.Bridge
	conn   *ipv4.PacketConn // sends to the group from port 5353
}

const attackerIP = "192.168.7.66"

func newAttacker(t *testing.T, bridge *harness.Bridge) *attacker {
	t.Helper()
	a := &attacker{Host: harness.NewHost(t, "mallory"), t: t, bridge: bridge}
	bridge.Attach(a.Host, attackerIP+"/24")
	require.NoError(t, a.Do(func() error {
		eth0, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		config := net.ListenConfig{Control: reuse}
		conn, err := config.ListenPacket(context.Background(), "udp4", fmt.Sprintf("%s:%d", attackerIP, mdns.Port))
		if err != nil {
			return err
		}
		a.conn = ipv4.NewPacketConn(conn)
		return errors.Join(a.conn.SetMulticastInterface(eth0), a.conn.SetMulticastTTL(255))
	}))
	t.Cleanup(func() { _ = a.conn.Close() })
	return a
}

// reuse is for net.ListenConfig: the port of multicast DNS is shared.
func reuse(_, _ string, raw syscall.RawConn) error {
	var err error
	return errors.Join(raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}), err)
}

const recordTTL = 120

// say sends the record of a node: its name, where its name leads, and its text.
func (a *attacker) say(name, address string, txt ...string) {
	a.t.Helper()
	instance, host := name+"._nvpair-node._tcp.local.", name+".local."
	a.send(&dns.PTR{Hdr: header("_nvpair-node._tcp.local.", dns.TypePTR, recordTTL), Ptr: instance},
		&dns.SRV{Hdr: header(instance, dns.TypeSRV, recordTTL), Port: 14318, Target: host},
		&dns.TXT{Hdr: header(instance, dns.TypeTXT, recordTTL), Txt: txt},
		&dns.A{Hdr: header(host, dns.TypeA, recordTTL), A: net.ParseIP(address)})
}

// sayGoodbye sends the goodbye of a node.
func (a *attacker) sayGoodbye(name string) {
	a.t.Helper()
	a.send(&dns.PTR{Hdr: header("_nvpair-node._tcp.local.", dns.TypePTR, 0), Ptr: name + "._nvpair-node._tcp.local."})
}

func header(name string, kind uint16, ttl uint32) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: ttl}
}

func (a *attacker) send(answers ...dns.RR) {
	a.t.Helper()
	m := &dns.Msg{MsgHdr: dns.MsgHdr{Response: true, Authoritative: true}, Answer: answers, Compress: true}
	packet, err := m.Pack()
	require.NoError(a.t, err)
	_, err = a.conn.WriteTo(packet, nil, group)
	require.NoError(a.t, err)
}

// whileSaying says something again and again for a time, in which ok must not fail the test.
func whileSaying(t *testing.T, d time.Duration, say, ok func()) {
	t.Helper()
	began := time.Now()
	eventually(t, d+evictWithin, "the time to pass", func() bool {
		say()
		ok()
		return time.Since(began) > d
	})
}

// answer serves the attacker's node-info at a port until the end of the test.
func (a *attacker) answer(port int, handler http.HandlerFunc) {
	a.t.Helper()
	var ln net.Listener
	require.NoError(a.t, a.Do(func() (err error) {
		ln, err = net.Listen("tcp4", fmt.Sprintf("%s:%d", attackerIP, port))
		return err
	}))
	ctx, stop := context.WithCancel(context.Background())
	server := &http.Server{Handler: handler, BaseContext: func(net.Listener) context.Context { return ctx }}
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(ln) }) // until it is closed
	a.t.Cleanup(func() {
		stop()
		_ = server.Close()
		running.Wait()
	})
}

// claims answers with another machine's identity.
func claims(uuid string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"GPUs":[],"telemetryValid":false,"msSince":0,"hostUuid":%q,"services":{"ni":14318}}`, uuid)
	}
}
