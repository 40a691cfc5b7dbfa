// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package mdns

import (
	"errors"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// listenGroup binds to the group's own address, which package net cannot: it binds
// to every address instead, and such a socket takes unicast packets from others.
func listenGroup() (net.PacketConn, error) {
	fd, err := openSocket()
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "mdns")
	defer file.Close() // FilePacketConn has a copy
	if err := errors.Join(reuse(fd), onlyJoined(fd)); err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: Port, Addr: Group().Addr().As4()}); err != nil {
		return nil, err
	}
	return net.FilePacketConn(file)
}

// openSocket opens a UDP socket that no child process inherits.
func openSocket() (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	return fd, err
}

// controlReuse is for net.ListenConfig.
func controlReuse(_, _ string, raw syscall.RawConn) error {
	var err error
	return errors.Join(raw.Control(func(fd uintptr) { err = reuse(int(fd)) }), err)
}

func alreadyJoined(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }
