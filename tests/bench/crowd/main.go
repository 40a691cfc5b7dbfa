// SPDX-License-Identifier: Apache-2.0

// Command crowd stands in for many nodes on one LAN. It is one process that owns one address for each of them, and no
// node of the product: each member is a responder of internal/mdns that speaks from its own address, announces itself
// as a node does and answers what is asked, and a node-info at that address, which tells invented figures.
//
// What members would say to each other is left out: none of them reads the others' answers or asks their node-info.
// With -ask each asks for nodes every 5 s, as a node does, and hears the questions of all others.
//
// It prints "ready" when all were announced once, and ends with its input.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"nvpair/internal/mdns"
)

const (
	serviceType = "_nvpair-node._tcp"
	infoPort    = 14318 // also the port in SRV records, where it means nothing

	startEvery  = 20 * time.Millisecond // members come one after the other
	announcedBy = 2 * time.Second       // from the start of a member until it was announced twice
	askEvery    = 5 * time.Second
	maxMembers  = 250 // all in one /24 inside the LAN
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	flags := flag.NewFlagSet("crowd", flag.ContinueOnError)
	members := flags.Int("members", 200, "how many `nodes` to stand in for")
	base := flags.String("base", "10.77.1.0", "the members have the `addresses` behind this one, which the interface must have")
	name := flags.String("interface", "eth0", "the `interface` to speak on")
	ask := flags.Bool("ask", false, "ask for nodes as well")
	if flags.Parse(args) != nil {
		return 2
	}
	if err := serve(*members, *base, *name, *ask); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// member is one of the nodes.
type member struct {
	uuid string
	addr netip.Addr
	conn *mdns.Conn
}

// membersOf makes n members, by the order of their addresses.
func membersOf(n int, base netip.Addr) ([]member, error) {
	if n < 1 || n > maxMembers || !base.Is4() {
		return nil, fmt.Errorf("%d members from %s on: 1 to %d and an IPv4 address are possible", n, base, maxMembers)
	}
	list := make([]member, n)
	addr := base
	for i := range list {
		addr = addr.Next()
		list[i] = member{uuid: fmt.Sprintf("5ca1ab1e-0000-4000-8000-%012d", i+1), addr: addr}
	}
	return list, nil
}

// serve is the crowd until the end of the input.
func serve(n int, base, name string, ask bool) error {
	first, err := netip.ParseAddr(base)
	if err != nil {
		return err
	}
	members, err := membersOf(n, first)
	if err != nil {
		return err
	}
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	t := newTap(mdns.System(), ask)
	for i := range members {
		m := &members[i]
		on := mdns.Interface{Name: ifi.Name, Index: ifi.Index, Prefixes: []netip.Prefix{netip.PrefixFrom(m.addr, 16)}}
		m.conn = mdns.New(mdns.Config{Network: t.seat(on)})
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	failed := make(chan error, 2) // one each of tap and node-info
	running.Go(func() { failed <- t.run(ctx, mdns.Interface{Name: ifi.Name, Index: ifi.Index}) })
	running.Go(func() { failed <- serveInfo(ctx, members) })
	running.Go(func() { // ends with the input, or with the process when a part has failed
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	})
	for i := range members {
		if err := members[i].start(ctx, &running, ask); err != nil {
			return err
		}
		pause(ctx, startEvery)
	}
	pause(ctx, announcedBy)
	fmt.Println("ready")
	return errors.Join(<-failed, <-failed)
}

// start lets a member run until ctx ends.
func (m *member) start(ctx context.Context, running *sync.WaitGroup, ask bool) error {
	name := fmt.Sprintf("crowd-%s", m.addr)
	_, err := m.conn.Publish(mdns.Service{Instance: name, Type: serviceType, Host: name, Port: infoPort, TXT: []string{
		"v=1", "uuid=" + m.uuid, "ip=" + m.addr.String(), "ni=14318", "ol=11434", "er=14319", "wl=14320",
	}})
	if err != nil {
		return err
	}
	if ask {
		b, err := m.conn.Browse(serviceType, func(mdns.Sighting) {})
		if err != nil {
			return err
		}
		running.Go(func() {
			for pause(ctx, rand.N(askEvery)); ctx.Err() == nil; pause(ctx, askEvery) {
				b.Query()
			}
		})
	}
	running.Go(func() { m.conn.Run(ctx) })
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
