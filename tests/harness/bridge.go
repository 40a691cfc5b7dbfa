// SPDX-License-Identifier: Apache-2.0

//go:build linux

package harness

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
)

// Bridge is a LAN: an Ethernet switch without an uplink, in a network namespace of its own. It is removed at the end
// of the test, with the interfaces of the hosts on it.
type Bridge struct {
	t    testing.TB
	host *Host // where the switch is; nothing runs there

	mu    sync.Mutex // guards the rest
	ports map[*Host]bridgePort
	last  int // number of the newest port
}

// bridgePort is one cable.
type bridgePort struct {
	near, far string // interface names: on the switch and in the host
}

// NewBridge makes a LAN that no host is on.
func NewBridge(t testing.TB) *Bridge {
	t.Helper()
	b := &Bridge{t: t, host: NewHost(t, "bridge"), ports: map[*Host]bridgePort{}}
	b.host.IP("link add br0 type bridge mcast_snooping 0", "link set br0 up")
	return b
}

// Attach plugs a host in, with an address such as "192.0.2.1/24", and returns the name of the new interface: the first
// of eth0, eth1 ... that the host does not have. A host can be on several bridges, but on each once.
func (b *Bridge) Attach(h *Host, cidr string) string {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.ports[h]; ok {
		b.t.Fatalf("host %s is on the bridge already", h.Name)
	}
	b.last++
	p := bridgePort{near: fmt.Sprintf("port%d", b.last), far: h.freeInterface()}
	b.host.IP(fmt.Sprintf("link add %s type veth peer name %s netns %d", p.near, p.far, h.HolderPID()),
		fmt.Sprintf("link set %s master br0 up", p.near))
	h.IP(fmt.Sprintf("addr add %s brd + dev %s", cidr, p.far), fmt.Sprintf("link set %s up", p.far))
	b.ports[h] = p
	return p.far
}

// Detach unplugs a host, and its interface is gone.
func (b *Bridge) Detach(h *Host) {
	b.t.Helper()
	b.host.IP("link del " + b.port(h).near)
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.ports, h)
}

// Cut makes everything that a host sends, and everything sent to it, vanish. It keeps its interface, its address and
// the carrier, so that only silence tells.
func (b *Bridge) Cut(h *Host) {
	b.t.Helper()
	b.host.IP("link set " + b.port(h).near + " nomaster")
}

// Heal undoes Cut.
func (b *Bridge) Heal(h *Host) {
	b.t.Helper()
	b.host.IP("link set " + b.port(h).near + " master br0")
}

// BlockMulticast makes the switch keep multicast from a host, as some access points do, or lets it through again.
// Everything else passes.
func (b *Bridge) BlockMulticast(h *Host, blocked bool) {
	b.t.Helper()
	flood := map[bool]string{true: "off", false: "on"}[blocked]
	b.host.IP("link set " + b.port(h).near + " type bridge_slave mcast_flood " + flood)
}

// port returns the cable of a host that is attached.
func (b *Bridge) port(h *Host) bridgePort {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	p, ok := b.ports[h]
	if !ok {
		b.t.Fatalf("host %s is not on the bridge", h.Name)
	}
	return p
}

// IP runs commands of ip(8) on the host, each without its first word: "addr add 192.0.2.2/24 dev eth0".
func (h *Host) IP(commands ...string) {
	h.t.Helper()
	cmd := h.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		h.t.Fatalf("ip %q on host %s: %v\n%s", commands, h.Name, err, out)
	}
}

// freeInterface returns the first name of eth0, eth1 ... that the host has no interface of.
func (h *Host) freeInterface() string {
	h.t.Helper()
	taken := map[string]bool{}
	if err := h.Do(func() error {
		interfaces, err := net.Interfaces()
		for _, i := range interfaces {
			taken[i.Name] = true
		}
		return err
	}); err != nil {
		h.t.Fatalf("list interfaces of host %s: %v", h.Name, err)
	}
	for i := 0; ; i++ {
		if name := fmt.Sprintf("eth%d", i); !taken[name] {
			return name
		}
	}
}
