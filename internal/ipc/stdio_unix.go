// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package ipc

import (
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// interruptible returns a reader whose Close ends a blocked Read. Pipes and
// sockets are given to the runtime's poller; their description is shared with
// nobody but the parent that made them for us, so making it non-blocking is safe.
// A terminal or file is shared with others and stays as it is.
func interruptible(in io.Reader) (io.Reader, func() error) {
	if f, ok := pollable(in); ok {
		return f, f.Close
	}
	return pumped(in)
}

func writable(out io.Writer) (io.Writer, func() error) {
	if f, ok := pollable(out); ok {
		return f, f.Close
	}
	if c, ok := out.(io.Closer); ok {
		return out, c.Close
	}
	return out, func() error { return nil }
}

func pollable(stream any) (*os.File, bool) {
	f, ok := stream.(*os.File)
	if !ok {
		return nil, false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return nil, false
	}
	number := f.Fd() // asked once: Fd makes the file blocking again
	fd, err := unix.FcntlInt(number, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, false
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		_ = syscall.Close(fd)
		return nil, false
	}
	// The original must go, or the peer would never see our end close.
	discard(f, int(number))
	return os.NewFile(uintptr(fd), f.Name()), true
}

// discard closes f, which has that number. A standard stream becomes the null
// device instead: the next file that is opened must not get its number, to which
// any library may print.
func discard(f *os.File, number int) {
	if number <= 2 {
		if null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil {
			defer func() { _ = null.Close() }()
			if unix.Dup2(int(null.Fd()), number) == nil {
				return
			}
		}
	}
	_ = f.Close()
}
