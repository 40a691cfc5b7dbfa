// SPDX-License-Identifier: Apache-2.0

package mdns_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"nvpair/internal/applog/applogtest"
	"nvpair/internal/mdns"
	"nvpair/internal/mdns/mdnstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	lan         = "lan"
	serviceType = "_x._tcp"
	ptrQuestion = "_x._tcp.local."
)

var alphaService = mdns.Service{Instance: "alpha", Type: serviceType, Port: 8080, TXT: []string{"v=1"}}

// world is a network in a bubble. Its time starts with it.
type world struct {
	*mdnstest.Network
	t     *testing.T
	begin time.Time
}

func newWorld(t *testing.T) *world {
	return &world{mdnstest.New(), t, time.Now()}
}

// machine adds a host with one interface.
func (w *world) machine(address string) *mdnstest.Host {
	h := w.Host()
	h.Attach("eth0", lan, address)
	return h
}

// node is a Conn that runs until the end of the test, or stop.
type node struct {
	*mdns.Conn
	log  *applogtest.Buffer
	stop func()
}

func (w *world) run(h *mdnstest.Host) *node { return w.runWith(mdns.Config{Network: h}) }

func (w *world) runWith(cfg mdns.Config) *node {
	n := &node{log: new(applogtest.Buffer)}
	cfg.Log = slog.New(slog.NewTextHandler(n.log, nil))
	cfg.Rand = rand.New(rand.NewPCG(1, 2))
	n.Conn = mdns.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { n.Run(ctx) })
	n.stop = func() { cancel(); running.Wait() }
	w.t.Cleanup(n.stop)
	return n
}

func (w *world) publish(n *node, s mdns.Service) *mdns.Publication {
	w.t.Helper()
	p, err := n.Publish(s)
	require.NoError(w.t, err)
	return p
}

// browse collects sightings.
func (w *world) browse(n *node) (*mdns.Browser, *sightings) {
	w.t.Helper()
	list := &sightings{}
	b, err := n.Browse(serviceType, list.add)
	require.NoError(w.t, err)
	return b, list
}

type sightings struct {
	mu   sync.Mutex // guards list
	list []mdns.Sighting
}

func (s *sightings) add(one mdns.Sighting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, one)
}

// take returns what came since the last call.
func (s *sightings) take() []mdns.Sighting {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.list
	s.list = nil
	return list
}

// pass lets time go by in a bubble, and returns at the end of what that moment brings.
func pass(d time.Duration) { <-time.After(d) }

// line is a packet as tests compare it: when, from whom, what.
type line struct {
	at   time.Duration // since the start
	from string
	what string
}

// sent returns what was sent since the last call.
func (w *world) sent() []line {
	w.t.Helper()
	var list []line
	for _, p := range w.Packets() {
		list = append(list, line{p.Time.Sub(w.begin), p.Source.Addr().String(), describe(w.t, p)})
	}
	return list
}

// describe tells what a packet is: "query TYPE name", "probe name", "announce name text", "goodbye name", "reply TYPES".
func describe(t *testing.T, p mdnstest.Packet) string {
	t.Helper()
	m := new(dns.Msg)
	require.NoError(t, m.Unpack(p.Data))
	to := ""
	if p.To != mdns.Group() {
		to = " to " + p.To.String()
	}
	switch {
	case !m.Response && len(m.Question) == 0:
		return "known answers"
	case !m.Response && len(m.Ns) > 0:
		return "probe " + m.Question[0].Name
	case !m.Response:
		return "query " + dns.TypeToString[m.Question[0].Qtype] + " " + m.Question[0].Name
	case len(m.Answer) == 1 && m.Answer[0].Header().Ttl == 0:
		return "goodbye " + m.Answer[0].(*dns.PTR).Ptr
	case len(m.Answer) > 2 && m.Answer[1].Header().Class == dns.ClassINET|1<<15:
		return "announce " + m.Answer[0].(*dns.PTR).Ptr + " " + strings.Join(m.Answer[2].(*dns.TXT).Txt, " ")
	}
	return "reply " + types(m.Answer) + "/" + types(m.Extra) + to
}

func types(list []dns.RR) string {
	var names []string
	for _, rr := range list {
		names = append(names, dns.TypeToString[rr.Header().Rrtype])
	}
	return strings.Join(names, " ")
}

// ask injects a query as another host of the LAN.
func (w *world) ask(source string, change func(*dns.Msg)) {
	w.t.Helper()
	m := new(dns.Msg)
	m.Question = []dns.Question{{Name: ptrQuestion, Qtype: dns.TypePTR, Qclass: dns.ClassINET}}
	if change != nil {
		change(m)
	}
	b, err := m.Pack()
	require.NoError(w.t, err)
	w.Inject(lan, netip.MustParseAddrPort(source), b)
}

// record parses one in presentation format.
func record(t *testing.T, text string) dns.RR {
	t.Helper()
	rr, err := dns.NewRR(text)
	require.NoError(t, err)
	return rr
}
