// SPDX-License-Identifier: Apache-2.0

package mdns

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/windows"
)

// listenGroup binds to every address: Windows binds no socket to a group's.
func listenGroup() (net.PacketConn, error) {
	config := net.ListenConfig{Control: controlReuse}
	any4 := netip.AddrPortFrom(netip.IPv4Unspecified(), Port)
	return config.ListenPacket(context.Background(), "udp4", any4.String())
}

// controlReuse is for net.ListenConfig.
func controlReuse(_, _ string, raw syscall.RawConn) error {
	var err error
	return errors.Join(raw.Control(func(fd uintptr) {
		err = windows.SetsockoptInt(windows.Handle(fd), windows.SOL_SOCKET, windows.SO_REUSEADDR, 1)
	}), err)
}

func alreadyJoined(err error) bool {
	return errors.Is(err, windows.WSAEADDRINUSE) || errors.Is(err, windows.WSAEADDRNOTAVAIL) ||
		errors.Is(err, windows.WSAEINVAL)
}
