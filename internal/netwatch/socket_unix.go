// SPDX-License-Identifier: Apache-2.0

//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package netwatch

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// maxMessageBytes holds any one message of these sockets; a longer one is cut, which
// does no harm: at most its first bytes are looked at.
const maxMessageBytes = 8 << 10

// system is the machine's source of hints.
type system struct{}

func newSystem() system { return system{} }

func (system) open() (Source, error) {
	fd, err := openSocket()
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	// As it does not block, the runtime waits for it, and Close ends a Read.
	return &socket{file: os.NewFile(uintptr(fd), "netwatch"), buffer: make([]byte, maxMessageBytes)}, nil
}

// socket is a Source out of a socket on which the kernel tells of changes. The
// messages are not decoded: what they say may be old news by then.
type socket struct {
	file   *os.File
	buffer []byte
}

func (s *socket) Wait() error {
	for {
		n, err := s.file.Read(s.buffer)
		if errors.Is(err, unix.ENOBUFS) {
			return nil // there were more messages than room for them
		}
		if err != nil {
			return err
		}
		if concerns(s.buffer[:n]) {
			return nil
		}
	}
}

func (s *socket) Close() error { return s.file.Close() }
