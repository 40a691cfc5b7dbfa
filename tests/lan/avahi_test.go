// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lan

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nvpair/internal/mdns"
	"nvpair/tests/harness"
)

const busConfig = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path=%s</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/> <allow own="*"/> <allow send_type="method_call"/> <allow send_destination="*"/>
    <allow receive_sender="*"/>
  </policy>
</busconfig>
`

// avahi is another responder on a host, with a message bus of its own.
type avahi struct {
	host *harness.Host
	bus  string
}

// startAvahi starts a bus and a daemon, which keeps its files in a /run of its own.
func startAvahi(t *testing.T, h *harness.Host) *avahi {
	t.Helper()
	harness.RequireProgram(t, "avahi-daemon", "avahi-browse", "avahi-publish", "dbus-daemon", "unshare", "mount")
	a := &avahi{host: h, bus: filepath.Join(h.Dir, "bus")}
	config := filepath.Join(h.Dir, "bus.conf")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, busConfig, a.bus), 0o600))
	a.start(t, "dbus-daemon", "--nofork", "--nopidfile", "--nosyslog", "--config-file="+config)
	harness.Eventually(t, patience, "the bus listens", func() bool {
		_, err := os.Stat(a.bus)
		return err == nil
	})
	empty := filepath.Join(h.Dir, "avahi.conf")
	require.NoError(t, os.WriteFile(empty, []byte("[publish]\npublish-workstation=no\n"), 0o600))
	daemon := a.start(t, "unshare", "--mount", "sh", "-c",
		"mount -t tmpfs none /run && exec avahi-daemon --no-drop-root --no-chroot --no-rlimits --file="+empty)
	daemon.AwaitStderr("Server startup complete", patience)
	return a
}

// start starts a program that ends with the test.
func (a *avahi) start(t *testing.T, name string, args ...string) *harness.Proc {
	t.Helper()
	cmd := a.host.Command(name, args...)
	cmd.Env = append(cmd.Env, "DBUS_SYSTEM_BUS_ADDRESS=unix:path="+a.bus)
	p := a.host.Start(cmd)
	t.Cleanup(func() {
		p.Signal(syscall.SIGTERM)
		p.AwaitExit(patience)
	})
	return p
}

// browse watches a type until the test ends, and returns a function that waits for a line, if it is not there yet.
func (a *avahi) browse(t *testing.T, serviceType string) func(pattern string) {
	t.Helper()
	var reading sync.WaitGroup
	t.Cleanup(reading.Wait) // once the program has ended
	p := a.start(t, "avahi-browse", "--resolve", "--parsable", serviceType)
	lines := make(chan string, 1000) // more than it prints
	reading.Go(func() {
		defer close(lines)
		for text := bufio.NewScanner(p.Stdout); text.Scan(); {
			lines <- text.Text()
		}
	})
	var all []string
	return func(pattern string) {
		t.Helper()
		timer := time.NewTimer(patience)
		defer timer.Stop()
		expression := regexp.MustCompile(pattern)
		for !slices.ContainsFunc(all, expression.MatchString) {
			select {
			case line, ok := <-lines:
				if !ok {
					t.Fatalf("avahi-browse has ended after %q", all)
				}
				all = append(all, line)
			case <-timer.C:
				t.Fatalf("avahi-browse does not print %q, only\n%s", pattern, strings.Join(all, "\n"))
			}
		}
	}
}

func TestAvahiOnTheSameHostSeesOursAndIsSeen(t *testing.T) {
	_, first, second := twoOnABridge(t)
	daemon := startAvahi(t, first)
	await := daemon.browse(t, "_peer._tcp")
	near := startPeer(t, first, "-instance", "Our own", "-port", "8080", "-txt", "v=1")
	far := startPeer(t, second, "-instance", "far", "-port", "8081")

	await(`^=;eth0;IPv4;Our\\032own;_peer\._tcp;local;Our\\032own\.local;192\.0\.2\.1;8080;"v=1"$`)
	await(`^=;eth0;IPv4;far;_peer\._tcp;local;far\.local;192\.0\.2\.2;8081;`)

	daemon.start(t, "avahi-publish", "--service", "Avahi's", "_peer._tcp", "9999", "a=b", "c=d")
	for _, p := range []*mdnsPeer{near, far} {
		s := p.await("Avahi's", patience, here("Avahi's"))
		require.Equal(t, uint16(9999), s.Port)
		require.ElementsMatch(t, []string{"a=b", "c=d"}, s.TXT)
		require.Equal(t, "alpha.local", s.Host)
		require.Contains(t, s.Addrs, addrs("192.0.2.1")[0])
	}
	far.await("its neighbour", patience, here("Our own"))

	near.tell("txt v=2")
	near.end()
	await(`^-;eth0;IPv4;Our\\032own;`)
	far.await("goodbye", atOnce, func(s mdns.Sighting) bool { return s.Instance == "Our own" && s.Goodbye })
}
