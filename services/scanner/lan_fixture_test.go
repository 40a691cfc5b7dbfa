// SPDX-License-Identifier: Apache-2.0

package scanner

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/mdns"
	"nvpair/internal/mdns/mdnstest"
	"nvpair/shared/discovery"
)

// lan is a network in memory, in a synctest bubble, with one scanner on it at
// 10.0.0.1.
type lan struct {
	*client
	net *mdnstest.Network

	mu    sync.Mutex // guards infos
	infos map[string]*info
}

// info is a stand-in for the node-info of a node.
type info struct {
	server *http.Server
	conns  chan net.Conn
	closed chan struct{} // by the server's end
}

func newLANWith(t *testing.T, change func(*Config)) *lan {
	l := &lan{net: mdnstest.New(), infos: make(map[string]*info)}
	cfg := newConfig(t, &host{ips: []string{"10.0.0.1"}})
	change(&cfg)
	machine := l.net.Host()
	machine.Attach("eth0", "lan", "10.0.0.1/24")
	cfg.Network, cfg.Dial = machine, l.dial
	l.client = start(t, cfg)
	l.event(discovery.NotifyNodeDiscovered) // its own
	t.Cleanup(func() { l.down() })
	return l
}

// dial reaches the stand-ins that are up.
func (l *lan) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	l.mu.Lock()
	i := l.infos[addr]
	l.mu.Unlock()
	if i == nil {
		return nil, errors.New("connection refused")
	}
	ours, theirs := net.Pipe()
	select {
	case i.conns <- theirs:
		return ours, nil
	case <-i.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// up starts a node-info at an address that says it is that node.
func (l *lan) up(ip, hostUUID string) { l.upIn(ip, hostUUID, "") }

// upIn is up for a node that says it is in a cluster.
func (l *lan) upIn(ip, hostUUID, clusterUUID string) {
	l.serve(ip+":14318", nil, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"GPUs":[{"name":"gpu","vram_bytes":8,"utilization_percent":40}],"cpu":{"name":"c","cores":4},`+
			`"telemetryValid":true,"msSince":100,"hostUuid":%q,"clusterUuid":%q}`, hostUUID, clusterUUID)
	})
}

// serve starts a server at an address, over TLS if secured is not nil.
func (l *lan) serve(addr string, secured *tls.Config, handle http.HandlerFunc) {
	i := &info{conns: make(chan net.Conn), closed: make(chan struct{})}
	i.server = &http.Server{Handler: handle, ErrorLog: log.New(io.Discard, "", 0)}
	var ln net.Listener = &pipes{info: i}
	if secured != nil {
		ln = tls.NewListener(ln, secured)
	}
	go func() { _ = i.server.Serve(ln) }()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.infos[addr] = i
}

// down ends the node-infos at these addresses, or all.
func (l *lan) down(ips ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for addr, i := range l.infos {
		if len(ips) == 0 || strings.HasPrefix(addr, ips[0]+":") {
			_ = i.server.Close()
			delete(l.infos, addr)
		}
	}
}

// pipes is a listener of connections in memory.
type pipes struct {
	*info
	once sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (*pipes) Addr() net.Addr { return &net.TCPAddr{} }

// node announces a node with a node-info, until leave says goodbye, or crash
// does not.
func (l *lan) node(name, ip, hostUUID string) (p *mdns.Publication, leave, crash func()) {
	machine := l.net.Host()
	machine.Attach("eth0", "lan", ip+"/24")
	conn := mdns.New(mdns.Config{Network: machine})
	p, err := conn.Publish(mdns.Service{Instance: name, Type: serviceType, Host: name, Port: srvPort, TXT: l.record(ip, hostUUID)})
	require.NoError(l.t, err)
	ctx, cancel := context.WithCancel(l.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); conn.Run(ctx) }()
	leave = sync.OnceFunc(func() { cancel(); <-ended })
	l.t.Cleanup(leave)
	return p, leave, func() { machine.Break("eth0", errors.New("no cable")); leave() }
}

func (l *lan) record(ip, hostUUID string) []string {
	r := record{hostUUID: hostUUID, ips: []string{ip}, services: map[string]discovery.Service{"ni": {Port: 14318}}}
	return r.txt(slog.New(slog.DiscardHandler))
}

// after returns the next event of that method about a node, others passed over,
// and how long it took.
func (l *lan) after(method, hostUUID string) (discovery.DirectoryNode, time.Duration) {
	l.t.Helper()
	began := time.Now()
	for time.Since(began) < 3*time.Minute {
		var frame struct {
			Method string
			Params discovery.NodeEvent
		}
		if line, ok := l.within(3 * time.Minute); !ok {
			break
		} else if require.NoError(l.t, json.Unmarshal([]byte(line), &frame)); frame.Method == method && frame.Params.Node.HostUUID == hostUUID {
			return frame.Params.Node, time.Since(began)
		}
	}
	require.FailNow(l.t, "no event", "%s of %s", method, hostUUID)
	return discovery.DirectoryNode{}, 0
}

// within returns the next frame, if one comes in time.
func (l *lan) within(d time.Duration) (string, bool) {
	_ = l.Conn.SetReadDeadline(time.Now().Add(d))
	line, err := l.Lines.ReadString('\n')
	return strings.TrimSpace(line), err == nil
}

// without lets time pass and requires that no event of that method comes.
func (l *lan) without(method string, d time.Duration) {
	l.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		line, ok := l.within(time.Until(end))
		if ok && strings.Contains(line, method) {
			require.FailNow(l.t, "unexpected event", line)
		}
	}
}

// close ends the scanner. Its last frames are read meanwhile.
func (l *lan) close() {
	go func() { _, _ = io.Copy(io.Discard, l.Lines) }()
	_ = l.Conn.SetReadDeadline(time.Time{})
	require.NoError(l.t, l.Stop())
}

func inLAN(t *testing.T, story func(l *lan)) { inLANWith(t, func(*Config) {}, story) }

func inLANWith(t *testing.T, change func(*Config), story func(l *lan)) {
	synctest.Test(t, func(t *testing.T) {
		l := newLANWith(t, change)
		defer l.close()
		story(l)
	})
}
