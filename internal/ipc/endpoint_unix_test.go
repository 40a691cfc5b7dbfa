// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package ipc

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

const someoneElse = 12345 // a user id that is not ours

// listen listens until the end of the test.
func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	ln, err := Listen(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// deadSocket leaves a socket at path that nobody listens at.
func deadSocket(t *testing.T, path string) {
	t.Helper()
	ln := listen(t, path).(*net.UnixListener)
	ln.SetUnlinkOnClose(false)
	require.NoError(t, ln.Close())
}

func requireMode(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.Equal(t, want, info.Mode(), path)
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
}

func TestBothEndsMeet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln := listen(t, path)
	client, err := Dial(t.Context(), path)
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	server, err := ln.Accept()
	require.NoError(t, err)
	defer func() { _ = server.Close() }()
	_, err = client.Write([]byte("x"))
	require.NoError(t, err)
	b := make([]byte, 8)
	n, err := server.Read(b)
	require.NoError(t, err)
	require.Equal(t, "x", string(b[:n]))
}

func TestSocketAndItsNewDirectoriesAreClosedToOthers(t *testing.T) {
	// Whatever the umask is. The test runs alone, so it may change it.
	for _, umask := range []int{0, 0o022, 0o077} {
		old := syscall.Umask(umask)
		outer := filepath.Join(t.TempDir(), "outer")
		path := filepath.Join(outer, "inner", "s")
		ln, err := Listen(path)
		after := syscall.Umask(old)
		require.NoError(t, err)
		require.Equal(t, umask, after, "the umask was changed")
		requireMode(t, outer, fs.ModeDir|0o700)
		requireMode(t, filepath.Dir(path), fs.ModeDir|0o700)
		requireMode(t, path, fs.ModeSocket|0o600)
		require.NoError(t, ln.Close())
		require.NoFileExists(t, path)
	}
}

func TestDirectoryWritableByOthersIsRefused(t *testing.T) {
	for _, mode := range []fs.FileMode{0o720, 0o702, 0o777, 0o777 | fs.ModeSticky} {
		dir := t.TempDir()
		path := filepath.Join(dir, "s")
		ln := listen(t, path)
		require.NoError(t, os.Chmod(dir, mode))

		_, err := Dial(t.Context(), path)
		require.ErrorContains(t, err, "is open to other users", "dial, mode %v", mode)
		require.NoError(t, ln.Close())
		_, err = Listen(path)
		require.ErrorContains(t, err, "is open to other users", "listen, mode %v", mode)
		require.NoFileExists(t, path)
	}
}

func TestDirectoryOfAnotherUserIsRefused(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	ln := listen(t, path)
	require.NoError(t, os.Chown(dir, someoneElse, -1))

	_, err := Dial(t.Context(), path)
	require.ErrorContains(t, err, "belongs to user 12345")
	require.NoError(t, ln.Close())
	_, err = Listen(path)
	require.ErrorContains(t, err, "belongs to user 12345")
	require.NoFileExists(t, path)
}

func TestLinkInPlaceOfTheDirectoryIsRefused(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(t.TempDir(), link))
	_, err := Listen(filepath.Join(link, "s"))
	require.ErrorContains(t, err, "is not what it should be")
}

func TestSocketOpenToOthersIsNotDialed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listen(t, path)
	for _, mode := range []fs.FileMode{0o620, 0o602, 0o640, 0o666} {
		require.NoError(t, os.Chmod(path, mode))
		_, err := Dial(t.Context(), path)
		require.ErrorContains(t, err, "is open to other users", "mode %v", mode)
	}
	conn, err := DialAny(t.Context(), path)
	require.NoError(t, err, "an endpoint that a parent named")
	require.NoError(t, conn.Close())
}

func TestSocketOfAnotherUserIsNotDialed(t *testing.T) {
	needRoot(t)
	path := filepath.Join(t.TempDir(), "s")
	listen(t, path)
	require.NoError(t, os.Chown(path, someoneElse, -1))
	_, err := Dial(t.Context(), path)
	require.ErrorContains(t, err, "belongs to user 12345")
}

func TestLinkToASocketIsNotDialed(t *testing.T) {
	dir := t.TempDir()
	listen(t, filepath.Join(dir, "s"))
	require.NoError(t, os.Symlink("s", filepath.Join(dir, "link")))
	_, err := Dial(t.Context(), filepath.Join(dir, "link"))
	require.ErrorContains(t, err, "is not what it should be")
}

func TestNobodyListens(t *testing.T) {
	dir := t.TempDir()
	_, err := Dial(t.Context(), filepath.Join(dir, "missing"))
	require.ErrorIs(t, err, ErrNobody)
	_, err = Dial(t.Context(), filepath.Join(dir, "no-directory", "missing"))
	require.ErrorIs(t, err, ErrNobody)
	deadSocket(t, filepath.Join(dir, "dead"))
	_, err = Dial(t.Context(), filepath.Join(dir, "dead"))
	require.ErrorIs(t, err, ErrNobody)
}

func TestListenerThatAnswersIsNotReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln := listen(t, path)
	_, err := Listen(path)
	require.ErrorContains(t, err, "another process listens there")
	probe, err := ln.Accept() // of the refused Listen
	require.NoError(t, err)
	require.NoError(t, probe.Close())

	conn, err := Dial(t.Context(), path)
	require.NoError(t, err, "the first listener must go on")
	require.NoError(t, conn.Close())
}

func TestDeadSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	deadSocket(t, path)
	require.NoError(t, os.Chmod(path, 0o666)) // a careless predecessor
	listen(t, path)
	requireMode(t, path, fs.ModeSocket|0o600)
	conn, err := Dial(t.Context(), path)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}

func TestWhatIsNoSocketIsNotReplaced(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	require.NoError(t, os.WriteFile(plain, []byte("precious"), 0o600))
	_, err := Listen(plain)
	require.ErrorContains(t, err, "is not what it should be")
	content, err := os.ReadFile(plain)
	require.NoError(t, err)
	require.Equal(t, "precious", string(content))

	deadSocket(t, filepath.Join(dir, "dead"))
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink("dead", link))
	_, err = Listen(link)
	require.ErrorContains(t, err, "is not what it should be")
	requireMode(t, link, fs.ModeSymlink|0o777)
}

func TestDirectoryThatCannotBeMadeIsAnError(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	require.NoError(t, os.WriteFile(plain, nil, 0o600))
	_, err := Listen(filepath.Join(plain, "dir", "s"))
	require.ErrorIs(t, err, syscall.ENOTDIR)
}
