// SPDX-License-Identifier: Apache-2.0

//go:build unix

package atomicfile

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	fi, err := os.Lstat(path)
	require.NoError(t, err)
	return fi.Mode()
}

func TestModesAreOwnerOnly(t *testing.T) {
	path := filepath.Join(privateDir(t), "new", "f")
	require.NoError(t, Write(path, nil))
	require.Equal(t, fs.FileMode(0o700), mode(t, filepath.Dir(path)).Perm())
	require.NoError(t, os.Chmod(path, 0o644))
	require.NoError(t, Write(path, nil)) // the old mode is not taken over
	require.Equal(t, fs.FileMode(0o600), mode(t, path))
}

func TestReadableFileIsTightened(t *testing.T) {
	path := filepath.Join(privateDir(t), "f")
	require.NoError(t, Write(path, []byte("x")))
	require.NoError(t, os.Chmod(path, 0o654))
	_, err := Read(path, 100)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), mode(t, path))
}

func TestUnsafePropertiesAreRefusedAndKept(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, dir, path string){
		"link": func(t *testing.T, dir, path string) {
			require.NoError(t, os.Rename(path, path+".real"))
			require.NoError(t, os.Symlink(path+".real", path))
		},
		"dangling link": func(t *testing.T, dir, path string) {
			require.NoError(t, os.Remove(path))
			require.NoError(t, os.Symlink(path+".none", path))
		},
		"hard link":       func(t *testing.T, dir, path string) { require.NoError(t, os.Link(path, path+".2")) },
		"group can write": func(t *testing.T, dir, path string) { require.NoError(t, os.Chmod(path, 0o620)) },
		"others can write": func(t *testing.T, dir, path string) {
			require.NoError(t, os.Chmod(path, 0o602))
		},
		"directory others can write": func(t *testing.T, dir, path string) {
			require.NoError(t, os.Chmod(dir, 0o707))
		},
		"named pipe": func(t *testing.T, dir, path string) {
			require.NoError(t, os.Remove(path))
			require.NoError(t, unix.Mkfifo(path, 0o600))
		},
		"other owner": func(t *testing.T, dir, path string) { chownOrSkip(t, path) },
		"directory of another owner": func(t *testing.T, dir, path string) {
			chownOrSkip(t, dir)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := privateDir(t)
			path := filepath.Join(dir, "f")
			require.NoError(t, Write(path, []byte("x")))
			spoil(t, dir, path)
			before := mode(t, path)
			_, err := Read(path, 100)
			var unsafe *UnsafeError
			require.ErrorAs(t, err, &unsafe)
			require.Contains(t, []string{dir, path}, unsafe.Path)
			require.Equal(t, before, mode(t, path))
		})
	}
}

// chownOrSkip gives path to another user, which only root can.
func chownOrSkip(t *testing.T, path string) {
	t.Helper()
	if err := os.Chown(path, 12345, -1); errors.Is(err, fs.ErrPermission) {
		t.Skip("only root can give a file away")
	}
}

func TestSocketIsRefused(t *testing.T) {
	t.Chdir(privateDir(t)) // socket names are short
	ln, err := net.Listen("unix", "s")
	require.NoError(t, err)
	defer ln.Close()
	_, err = Read("s", 100)
	var unsafe *UnsafeError
	require.ErrorAs(t, err, &unsafe)
}

func TestUnsafeDirectoryIsNotWritten(t *testing.T) {
	dir := privateDir(t)
	require.NoError(t, os.Chmod(dir, 0o777))
	err := Write(filepath.Join(dir, "f"), nil)
	var unsafe *UnsafeError
	require.ErrorAs(t, err, &unsafe)
	require.Empty(t, names(t, dir))
}

func TestWriteReplacesALinkAndNotItsTarget(t *testing.T) {
	dir := privateDir(t)
	path, target := filepath.Join(dir, "f"), filepath.Join(dir, "target")
	require.NoError(t, os.WriteFile(target, []byte("old"), 0o600))
	require.NoError(t, os.Symlink(target, path))
	require.NoError(t, Write(path, []byte("new")))
	old, err := os.ReadFile(target)
	require.NoError(t, err)
	require.Equal(t, "old", string(old))
	require.True(t, mode(t, path).IsRegular())
}

func TestFileReplacedWhileOpenIsStillValid(t *testing.T) {
	path := filepath.Join(privateDir(t), "f")
	require.NoError(t, Write(path, []byte("old")))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, Write(path, []byte("new")))
	require.NoError(t, checkFile(f, path)) // PO-75: no link is left
}

func TestLeftoversOfOthersAndLinksStay(t *testing.T) {
	dir := privateDir(t)
	require.NoError(t, os.Symlink("f", filepath.Join(dir, ".f1")))
	want := []string{".f1"}
	if os.Geteuid() == 0 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, ".f2"), nil, 0o600))
		require.NoError(t, os.Chown(filepath.Join(dir, ".f2"), 12345, -1))
		want = append(want, ".f2")
	}
	RemoveLeftovers(filepath.Join(dir, "f"))
	require.Equal(t, want, names(t, dir))
}
