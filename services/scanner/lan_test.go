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
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
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

func TestANodeAppearsWithWhatItSaysOfItself(t *testing.T) {
	inLAN(t, func(l *lan) {
		l.up("10.0.0.2", other)
		_, leave, _ := l.node("beta", "10.0.0.2", other)
		n, took := l.after(discovery.NotifyNodeDiscovered, other)
		require.LessOrEqual(l.t, took, 3*time.Second)
		require.Equal(l.t, []any{"beta", "10.0.0.2", []string{"10.0.0.2"}, map[string]discovery.Service{"ni": {Port: 14318}}, false},
			[]any{n.Name, n.IP, n.IPs, n.Services, n.Trusted})
		n, _ = l.after(discovery.NotifyNodeUpdated, other)
		require.JSONEq(l.t, `[{"name":"gpu","vram_bytes":8,"utilization_percent":40}]`, string(n.GPUs))
		l.down("10.0.0.2")
		leave()
		_, took = l.after(discovery.NotifyNodeRemoved, other)
		require.LessOrEqual(l.t, took, 2*time.Second, "one that left in order is gone at once")
	})
}

// A node that stops in order withdraws its services one by one and then says
// goodbye.
func TestANodeThatWithdrewItsServicesFirstIsGoneAtOnceToo(t *testing.T) {
	inLAN(t, func(l *lan) {
		l.up("10.0.0.2", other)
		p, leave, _ := l.node("beta", "10.0.0.2", other)
		l.after(discovery.NotifyNodeUpdated, other)
		l.down("10.0.0.2")
		require.NoError(l.t, p.SetTXT([]string{"v=1", "uuid=" + other, "ip=10.0.0.2"}))
		l.after(discovery.NotifyNodeUpdated, other)
		leave()
		_, took := l.after(discovery.NotifyNodeRemoved, other)
		require.LessOrEqual(l.t, took, 2*time.Second)
	})
}

func TestAForgedGoodbyeRemovesNobody(t *testing.T) {
	inLAN(t, func(l *lan) {
		l.up("10.0.0.2", other)
		_, leave, _ := l.node("beta", "10.0.0.2", other)
		l.after(discovery.NotifyNodeDiscovered, other)
		leave() // its node-info answers on
		l.without(discovery.NotifyNodeRemoved, 5*time.Minute)
	})
}

func TestAKilledNodeIsGoneAfterAMinute(t *testing.T) {
	inLAN(t, func(l *lan) {
		l.up("10.0.0.2", other)
		_, _, crash := l.node("beta", "10.0.0.2", other)
		l.after(discovery.NotifyNodeDiscovered, other)
		l.down("10.0.0.2")
		crash()
		_, took := l.after(discovery.NotifyNodeRemoved, other)
		require.Greater(l.t, took, 50*time.Second)
		require.Less(l.t, took, 75*time.Second)
	})
}

func TestANodeThatIsNotHeardButAnswersStays(t *testing.T) {
	inLAN(t, func(l *lan) {
		l.up("10.0.0.2", other)
		_, _, crash := l.node("beta", "10.0.0.2", other)
		l.after(discovery.NotifyNodeDiscovered, other)
		crash() // multicast is blocked for ever
		l.without(discovery.NotifyNodeRemoved, 10*time.Minute)
		l.down("10.0.0.2")
		l.up("10.0.0.2", "somebody else")
		l.after(discovery.NotifyNodeRemoved, other)
	})
}

func TestAChangedRecordIsTakenAtOnce(t *testing.T) {
	inLAN(t, func(l *lan) {
		p, _, _ := l.node("beta", "10.0.0.2", other)
		l.after(discovery.NotifyNodeDiscovered, other)
		require.NoError(l.t, p.SetTXT(append(l.record("10.0.0.2", other), "ol=11434")))
		n, took := l.after(discovery.NotifyNodeUpdated, other)
		require.LessOrEqual(l.t, took, 2*time.Second)
		require.Equal(l.t, 11434, n.Services["ol"].Port)
	})
}

func TestTwoNodesOfOneNameAreTwo(t *testing.T) { // DI-71
	inLAN(t, func(l *lan) {
		l.node("beta", "10.0.0.2", other)
		l.after(discovery.NotifyNodeDiscovered, other)
		third := strings.Replace(other, "9", "8", 1)
		l.node("beta", "10.0.0.3", third)
		l.after(discovery.NotifyNodeDiscovered, third)
		l.without(discovery.NotifyNodeRemoved, 20*time.Second)
	})
}

// Anybody can send a record, but only the node itself answers as itself.
func TestAForgedRecordMovesNobody(t *testing.T) {
	inLAN(t, func(l *lan) {
		l.up("10.0.0.2", other)
		l.node("beta", "10.0.0.2", other)
		l.after(discovery.NotifyNodeUpdated, other)
		l.up("10.0.0.66", "the forger")
		p, _, _ := l.node("beta", "10.0.0.66", "the forger")
		l.after(discovery.NotifyNodeDiscovered, "the forger")
		require.NoError(l.t, p.SetTXT([]string{"uuid=" + other, "ip=10.0.0.66", "ni=1"}))
		l.without(`"hostUuid":"`+other+`","name":"beta","ip":"10.0.0.66"`, time.Minute)
		p.Withdraw()
		l.without(discovery.NotifyNodeRemoved+`","params":{"node":{"hostUuid":"`+other, time.Minute)
	})
}

func TestANodeThatMovesIsFollowed(t *testing.T) {
	inLAN(t, func(l *lan) {
		l.up("10.0.0.2", other)
		p, _, _ := l.node("beta", "10.0.0.2", other)
		l.after(discovery.NotifyNodeUpdated, other)
		l.down("10.0.0.2")
		l.up("10.0.0.22", other)
		require.NoError(l.t, p.SetTXT(l.record("10.0.0.22", other)))
		for {
			if n, took := l.after(discovery.NotifyNodeUpdated, other); n.IP == "10.0.0.22" {
				require.Less(l.t, took, 15*time.Second)
				return
			}
		}
	})
}

func TestRecordsCannotMakeANodeAskItself(t *testing.T) {
	for _, ip := range []string{
		"0.0.0.0", "::", "::ffff:0.0.0.0", "127.0.0.1", "::1", "::ffff:127.0.0.1", "224.0.0.1", "255.255.255.255", "169.254.1.1", "fe80::1", "ff02::1",
	} {
		require.Empty(t, literals([]string{ip}), ip)
		p := &peer{now: []netip.Addr{netip.MustParseAddr(ip)}}
		require.Empty(t, p.candidates(func(netip.Addr) bool { return false }), ip)
	}
}

func TestAMachineThatWasSetUpAnewReplacesItsOldEntry(t *testing.T) { // DI-78, DI-79
	for name, stillThere := range map[string]bool{"the old one is gone": false, "the old one answers": true} {
		t.Run(name, func(t *testing.T) {
			inLAN(t, func(l *lan) {
				l.up("10.0.0.2", other)
				_, _, crash := l.node("beta", "10.0.0.2", other)
				l.after(discovery.NotifyNodeDiscovered, other)
				l.without(discovery.NotifyNodeRemoved, 6*time.Minute)
				anew := strings.Replace(other, "9", "8", 1)
				at := "10.0.0.2"
				if stillThere {
					at = "10.0.0.3"
				} else {
					crash()
					l.down(at)
				}
				l.up(at, anew)
				l.node("beta", at, anew)
				if stillThere {
					l.without(discovery.NotifyNodeRemoved, 6*time.Minute)
					return
				}
				_, took := l.after(discovery.NotifyNodeRemoved, other)
				require.Less(l.t, took, 20*time.Second, "not after a minute of misses")
			})
		})
	}
}

func TestWhatTheLinkDoesNotTakeIsSentLater(t *testing.T) {
	var got []string
	full := true
	o := newOwed(func(method string, params any) bool {
		if !full {
			got = append(got, fmt.Sprint(method, params))
		}
		return !full
	})
	o.emit("a", "discovered", 1)
	o.emit("b", "discovered", 2)
	o.emit("a", "removed", 3)
	full = false
	o.emit("a", "discovered", 4) // must not pass what waits
	require.Empty(t, got)
	o.emit("c", "discovered", 5)
	o.settle()
	require.ElementsMatch(t, []string{"discovered5", "discovered4", "discovered2"}, got)
}

func TestTheHardwareOfOthersIsBounded(t *testing.T) {
	var gpus []string
	for range 1000 {
		gpus = append(gpus, `{"name":"`+strings.Repeat("x", 1000)+`","utilization_percent":400,"junk":{"a":[1]}}`)
	}
	i, err := parseInventory([]byte(`{"GPUs":[` + strings.Join(gpus, ",") + `],"cpu":{"name":"` + strings.Repeat("é", 5000) + `"},"hostUuid":"u"}`))
	require.NoError(t, err)
	i = i.described()
	require.Less(t, len(i.gpus)+len(i.cpu), 8<<10)
	require.EqualValues(t, 100, i.use)
	_, err = parseInventory([]byte(`{"GPUs":{}}`))
	require.Error(t, err)
}

func TestThisMachinesAddressIsNoOtherNodes(t *testing.T) { // DEC-69
	own := map[netip.Addr]bool{netip.MustParseAddr("10.0.0.1"): true}
	p := &peer{
		rec: record{ips: []string{"10.0.0.1", "127.0.0.1", "10.0.0.9"}},
		now: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("2001:db8::9"), netip.MustParseAddr("8.8.8.8")},
	}
	isOwn := func(a netip.Addr) bool { return a.IsLoopback() || own[a] }
	require.Equal(t, []string{"10.0.0.9", "8.8.8.8", "2001:db8::9"}, p.candidates(isOwn))
}

func TestAFloodOfRecordsPushesOutNobody(t *testing.T) {
	inLAN(t, func(l *lan) {
		l.up("10.0.0.2", other)
		l.node("beta", "10.0.0.2", other)
		l.after(discovery.NotifyNodeUpdated, other)
		flood := l.net.Host()
		flood.Attach("eth0", "lan", "10.0.0.66/24")
		conn := mdns.New(mdns.Config{Network: flood})
		p, err := conn.Publish(mdns.Service{Instance: "flood", Type: serviceType, Host: "flood", Port: srvPort, TXT: []string{"v=1"}})
		require.NoError(l.t, err)
		ctx, cancel := context.WithCancel(l.t.Context())
		var running sync.WaitGroup
		running.Go(func() { conn.Run(ctx) })
		for i := range 1000 {
			require.NoError(l.t, p.SetTXT([]string{fmt.Sprintf("uuid=forged-%d", i), "ip=10.0.0.66"}))
			l.without(discovery.NotifyNodeRemoved+`","params":{"node":{"hostUuid":"`+other, 1100*time.Millisecond)
		}
		cancel()
		running.Wait()
		var list discovery.Directory
		_ = l.Conn.SetReadDeadline(time.Time{})
		l.Send(`{"jsonrpc":"2.0","id":7,"method":"discovery:get-nodes","params":{}}`)
		for {
			line, ok := l.within(time.Minute)
			require.True(l.t, ok)
			if strings.HasPrefix(line, `{"jsonrpc":"2.0","id":7,`) {
				var answer struct{ Result discovery.Directory }
				require.NoError(l.t, json.Unmarshal([]byte(line), &answer))
				list = answer.Result
				break
			}
		}
		require.LessOrEqual(l.t, len(list.Nodes), maxPeers+1)
		found := false
		for _, n := range list.Nodes {
			found = found || n.HostUUID == other
		}
		require.True(l.t, found, "the real node stays")
	})
}

func TestANodeGivenByAddressLivesByItsAnswers(t *testing.T) { // DEC-65
	inLAN(t, func(l *lan) {
		l.up("192.0.2.9", other)
		l.Notify(discovery.MethodStaticNode, `{"hostUuid":"`+other+`","name":"far","addresses":["192.0.2.9"],"services":{"ni":{"port":14318}}}`)
		n, _ := l.after(discovery.NotifyNodeDiscovered, other)
		require.Equal(l.t, "192.0.2.9", n.IP)
		l.without(discovery.NotifyNodeRemoved, 10*time.Minute)
		l.down("192.0.2.9")
		l.after(discovery.NotifyNodeRemoved, other)
		l.up("192.0.2.9", other)
		_, took := l.after(discovery.NotifyNodeDiscovered, other)
		require.Less(l.t, took, 15*time.Second)
		l.Notify(discovery.MethodStaticNodeRemoved, `{"hostUuid":"`+other+`"}`)
		l.down("192.0.2.9")
		l.after(discovery.NotifyNodeRemoved, other)
	})
}

func TestLoadIsSampled(t *testing.T) {
	inLAN(t, func(l *lan) {
		l.up("10.0.0.2", other)
		l.node("beta", "10.0.0.2", other)
		for {
			line, ok := l.within(time.Minute)
			require.True(l.t, ok, "no sample")
			if strings.Contains(line, discovery.NotifyNodeTelemetry) {
				require.Contains(l.t, line, `{"hostUuid":"`+other+`","gpuUtilizationPercent":40,"telemetryValid":true,"msSince":100}`)
				return
			}
		}
	})
}

func TestThatThereIsNoReadingIsSaidOnce(t *testing.T) {
	var x telemetry
	p := &poll{}
	for _, tt := range []struct{ valid, news bool }{{false, true}, {false, false}, {true, true}, {true, true}, {false, true}, {false, false}} {
		require.Equal(t, tt.news, x.news(p, tt.valid))
	}
}

func TestNodesThatDoNotAnswerAreAskedLessAndLess(t *testing.T) { // DI-95
	for n, want := range []time.Duration{4, 8, 16, 30, 30, 30} {
		require.Equal(t, want*time.Second, backoff(n+1))
	}
	require.Equal(t, 2*time.Second, telemetryPeriod(""))
	for _, id := range []string{uuid, other, "x"} {
		d := telemetryPeriod(id)
		require.Equal(t, d, telemetryPeriod(id))
		require.InDelta(t, 2000, d.Milliseconds(), 250)
	}
}

func TestANodeWithoutAReadingIsAskedLessOften(t *testing.T) {
	for name, tt := range map[string]struct {
		valid    bool
		from, to int
	}{"with one": {true, 27, 35}, "without": {false, 6, 13}} { // in a minute, with the 15 s looks at the inventory
		inLAN(t, func(l *lan) {
			var asked atomic.Int32
			l.serve("10.0.0.2:14318", nil, func(w http.ResponseWriter, _ *http.Request) {
				asked.Add(1)
				_, _ = fmt.Fprintf(w, `{"GPUs":[],"telemetryValid":%v,"msSince":0,"hostUuid":%q}`, tt.valid, other)
			})
			l.node("beta", "10.0.0.2", other)
			l.after(discovery.NotifyNodeDiscovered, other)
			l.without("no such event", 10*time.Second)
			before := asked.Load()
			l.without("no such event", time.Minute)
			got := int(asked.Load() - before)
			require.True(l.t, tt.from <= got && got <= tt.to, "%s: %d requests in a minute", name, got)
		})
	}
}
