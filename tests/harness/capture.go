// SPDX-License-Identifier: Apache-2.0

//go:build linux

package harness

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// captureBuffer is what the kernel keeps until a packet is looked at.
const captureBuffer = 8 << 20

// Capture calls f with each frame to and from a host, as the switch sees it, from the Ethernet header on, until the
// function that it returns is called. That one returns how many frames were lost because f was too slow. f runs on a
// goroutine of its own; the bytes are its own until it returns.
func (b *Bridge) Capture(h *Host, f func(frame []byte)) (stop func() (lost int)) {
	b.t.Helper()
	file, err := b.openCapture(b.port(h).near)
	if err != nil {
		b.t.Fatalf("capture packets of host %s: %v", h.Name, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buffer := make([]byte, 64<<10)
		for {
			n, err := file.Read(buffer)
			if err != nil {
				return // closed
			}
			f(buffer[:n])
		}
	}()
	var once sync.Once
	lost := 0
	stop = func() int {
		once.Do(func() {
			lost = lostBy(file)
			_ = file.Close()
			<-done
		})
		return lost
	}
	b.t.Cleanup(func() { stop() })
	return stop
}

// openCapture opens a packet socket on a port of the switch. Its file is one of Go's poller.
func (b *Bridge) openCapture(port string) (*os.File, error) {
	var file *os.File
	err := b.host.Do(func() error {
		ifi, err := net.InterfaceByName(port)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0) // 0: nothing before bind
		if err != nil {
			return err
		}
		file = os.NewFile(uintptr(fd), "packets of "+port)
		err = errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, captureBuffer),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: ifi.Index}))
		if err != nil {
			return errors.Join(fmt.Errorf("bind to %s: %w", port, err), file.Close())
		}
		return nil
	})
	return file, err
}

// lostBy returns how many frames the kernel has dropped.
func lostBy(file *os.File) int {
	lost := 0
	raw, err := file.SyscallConn()
	if err != nil {
		return 0 // closed
	}
	_ = raw.Control(func(fd uintptr) { // an error: closed
		if stats, err := unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
			lost = int(stats.Drops)
		}
	})
	return lost
}

// htons returns a number in the byte order of the network.
func htons(n uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], n)
	return binary.NativeEndian.Uint16(b[:])
}
