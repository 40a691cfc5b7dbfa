// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package ipc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// ErrNobody means that nothing listens at the endpoint.
var ErrNobody = errors.New("nobody listens there")

// Dial connects to a Unix domain socket. The socket must belong to this user and
// be closed to others, and only this user may be able to replace it. The error
// is ErrNobody if there is no socket or nobody behind it.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	err := checkOwner(filepath.Dir(path), fs.ModeDir, 0o022)
	if err == nil {
		err = checkOwner(path, fs.ModeSocket, 0o077)
	}
	var conn net.Conn
	if err == nil {
		conn, err = DialAny(ctx, path)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("%s: %w", path, ErrNobody)
	}
	return conn, err
}

// DialAny connects to an endpoint that a parent named, whoever owns it.
func DialAny(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", path)
}

// Listen listens on a Unix domain socket with mode 0600 in a directory that must
// belong to this user and be writable by nobody else; the directory is made 0700
// if it is missing. A socket left by a dead process is replaced, one that
// answers and anything that is no socket is not. The socket is removed when the
// listener is closed. Two processes that replace a dead socket at the same time
// can both succeed: a lock elsewhere must exclude that.
func Listen(path string) (net.Listener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := checkOwner(dir, fs.ModeDir, 0o022); err != nil {
		return nil, err
	}
	if err := removeDead(path); err != nil {
		return nil, err
	}
	// Nobody may connect before the mode is set. On Linux the file takes it over
	// from the socket, elsewhere this does nothing and the usual umask must do.
	// Changing the umask would do it too, but to the whole process.
	early := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), 0o600) })
	}}
	ln, err := early.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = ln.Close()
		return nil, err
	}
	return ln, nil
}

// removeDead makes room for a new socket: it removes one that nobody answers at.
// Connecting to a file that is no socket is refused as well, so the kind comes
// first.
func removeDead(path string) error {
	if err := checkOwner(path, fs.ModeSocket, 0); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("%s: another process listens there", path)
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return os.Remove(path)
	}
	return nil // whatever it is, Listen will say
}

// checkOwner requires a path of that kind, not a link, that belongs to this user
// and grants others none of the forbidden bits.
func checkOwner(path string, kind, forbidden fs.FileMode) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	uid := uint32(os.Geteuid())
	switch {
	case info.Mode().Type() != kind:
		return fmt.Errorf("%s is not what it should be (%s)", path, info.Mode())
	case ok && stat.Uid != uid:
		return fmt.Errorf("%s belongs to user %d, not to user %d who runs this", path, stat.Uid, uid)
	case info.Mode().Perm()&forbidden != 0:
		return fmt.Errorf("%s is open to other users (%s)", path, info.Mode())
	}
	return nil
}
