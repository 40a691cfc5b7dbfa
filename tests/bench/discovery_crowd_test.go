// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"nvpair/internal/mdns"
	"nvpair/shared/discovery"
	"nvpair/tests/harness"
)

const (
	crowdMembers = 200
	// settleFor is two sweeps of the scanner after it knows everybody.
	settleFor = 35 * time.Second
)

// measureCrowd watches one node among 200. These are a stand-in, one process with 200 addresses (see its package
// comment): responders and node-infos, no trees. So all that is measured of the product is the one node, and what the
// 200 would ask of each other and of it is missing on the wire.
func measureCrowd(t *testing.T, what string, args ...string) []figure {
	t.Helper()
	bridge, hosts := newLAN(t, "alone", "crowd")
	alone, crowd := hosts[0], hosts[1]
	base := netip.MustParseAddr("10.77.1.0")
	var commands []string
	for addr, i := base.Next(), 0; i < crowdMembers; addr, i = addr.Next(), i+1 {
		commands = append(commands, fmt.Sprintf("addr add %s/16 dev eth0", addr))
	}
	crowd.IP(commands...)
	standIn := launch(t, crowd, harness.Program(t, "tests/bench/crowd"),
		append([]string{"-members", fmt.Sprint(crowdMembers), "-base", base.String()}, args...)...)
	standIn.within(callWithin)
	if line, err := standIn.next(); err != nil || string(line) != "ready\n" {
		t.Fatalf("the crowd said %q, %v", line, err)
	}
	m := startMachine(t, alone)
	known := m.news.awaitNodes(t, "everybody to be known", func(list []byte) bool {
		return bytes.Count(list, []byte(`"hostUuid"`)) == crowdMembers+1
	}).Sub(m.tree.began)
	m.tree.rest(t, settleFor)

	scanner := processOf(t, alone, "nvpair-node-scanner")
	traffic := newTraffic(netip.MustParseAddr("10.77.0.1"))
	begin, began := readActivityOf(t, scanner), time.Now()
	stop := bridge.Capture(crowd, traffic.count)
	m.tree.rest(t, *crowdFor)
	lost := stop()
	took, end := time.Since(began), readActivityOf(t, scanner)
	if lost > 0 {
		t.Fatalf("%d packets were not counted", lost)
	}
	figures := crowdFigures(what, 100*(end.cpu-begin.cpu).Seconds()/took.Seconds(), traffic, took)
	figures = append(figures, snapshotFigures(what, m.news, m.tree.began, began, known)...)
	m.tree.stop(t, alone)
	standIn.stop(t, crowd)
	return figures
}

func readActivityOf(t *testing.T, pid int) activity {
	t.Helper()
	a, err := readActivity(pid)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// traffic counts packets.
type traffic struct {
	alone netip.Addr // the one node

	mu         sync.Mutex // guards the rest
	all        int
	byTheAlone int // multicast DNS of it
	bySender   map[netip.Addr]int
	info       int // TCP of node-info
}

func newTraffic(alone netip.Addr) *traffic {
	return &traffic{alone: alone, bySender: map[netip.Addr]int{}}
}

// count takes an Ethernet frame.
func (c *traffic) count(frame []byte) {
	const ethernet, ipv4Least, ports = 14, 20, 4
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all++
	if len(frame) < ethernet+ipv4Least || binary.BigEndian.Uint16(frame[12:]) != 0x0800 {
		return // ARP, as a rule
	}
	ip := frame[ethernet:]
	header := int(ip[0]&0xf) * 4
	if len(ip) < header+ports {
		return
	}
	source, _ := netip.AddrFromSlice(ip[12:16])
	from, to := binary.BigEndian.Uint16(ip[header:]), binary.BigEndian.Uint16(ip[header+2:])
	switch protocol := ip[9]; {
	case protocol == 17 && to == mdns.Port && source == c.alone:
		c.byTheAlone++
	case protocol == 17 && to == mdns.Port:
		c.bySender[source]++
	case protocol == 6 && (from == discovery.PortNodeInfo || to == discovery.PortNodeInfo):
		c.info++
	}
}

// crowdFigures are those of CPU and packets.
func crowdFigures(what string, cpu float64, c *traffic, took time.Duration) []figure {
	c.mu.Lock()
	defer c.mu.Unlock()
	var counts []int
	sent := 0
	for _, n := range c.bySender {
		counts = append(counts, n)
		sent += n
	}
	rate := func(n, nodes int) float64 { return float64(n) / float64(nodes) / took.Seconds() }
	if len(counts) == 0 {
		counts = []int{0}
	}
	return []figure{
		{what + ": scanner, CPU of a core", cpu, "%", fmt.Sprintf("over %v", took.Round(time.Second)), atMost(3),
			"README.md: the scanner among many"},
		{what + ": packets a node", rate(c.all, crowdMembers), "/s", fmt.Sprintf(
			"both ways; multicast DNS %.2f, at most %.2f; node-info %.2f; the one node's own multicast DNS %.2f", rate(sent, crowdMembers),
			rate(slices.Max(counts), 1), rate(c.info, crowdMembers), rate(c.byTheAlone, 1)), atMost(5), "README.md: the scanner among many"},
	}
}

// snapshotFigures are those of what the client of the one node was told.
func snapshotFigures(what string, n *news, started, steady time.Time, known time.Duration) []figure {
	var arriving []time.Time
	calm := 0
	for _, one := range n.since(started) {
		switch {
		case one.what != nodesChanged:
		case one.at.Before(steady):
			arriving = append(arriving, one.at)
		default:
			calm++
		}
	}
	return []figure{
		{what + ": lists to a client", float64(calm) / crowdFor.Seconds(), "/s", fmt.Sprintf("%d lists", calm), atMost(2),
			"each change of a node's record or hardware is one"},
		{what + ": lists to a client, while they come", float64(busiestSecond(arriving)), "/s",
			fmt.Sprintf("the busiest second; %d lists, all known after %.1f s", len(arriving), known.Seconds()), noBar(), ""},
	}
}

// busiestSecond returns the most of sorted times that fall into one second.
func busiestSecond(at []time.Time) int {
	most, first := 0, 0
	for i := range at {
		for at[i].Sub(at[first]) >= time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}
