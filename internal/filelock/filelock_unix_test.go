// SPDX-License-Identifier: Apache-2.0

//go:build unix

package filelock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"nvpair/internal/atomicfile"
)

func TestModesAreOwnerOnly(t *testing.T) {
	path := lockPath(t)
	for range 2 { // created, then fixed
		l, err := Acquire(ended(), path, me)
		require.NoError(t, err)
		fi, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), fi.Mode())
		require.NoError(t, os.Chmod(path, 0o666))
		require.NoError(t, l.Release())
	}
	fi, err := os.Stat(filepath.Dir(path))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o700), fi.Mode().Perm())
}

func TestUnsafeLockFilesAreRefusedAndKept(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, path string){
		"link": func(t *testing.T, path string) {
			require.NoError(t, os.Rename(path, path+".real"))
			require.NoError(t, os.Symlink(path+".real", path))
		},
		"dangling link": func(t *testing.T, path string) {
			require.NoError(t, os.Remove(path))
			require.NoError(t, os.Symlink(path+".none", path))
		},
		"second link": func(t *testing.T, path string) { require.NoError(t, os.Link(path, path+".2")) },
		"named pipe": func(t *testing.T, path string) {
			require.NoError(t, os.Remove(path))
			require.NoError(t, unix.Mkfifo(path, 0o600))
		},
		"other owner": func(t *testing.T, path string) {
			if err := os.Chown(path, 12345, -1); errors.Is(err, fs.ErrPermission) {
				t.Skip("only root can give a file away")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := lockPath(t)
			require.NoError(t, os.Mkdir(filepath.Dir(path), 0o700))
			require.NoError(t, os.WriteFile(path, []byte("old"), 0o640))
			spoil(t, path)
			before, err := os.Lstat(path)
			require.NoError(t, err)

			var unsafe *atomicfile.UnsafeError
			_, err = Acquire(t.Context(), path, me)
			require.ErrorAs(t, err, &unsafe)
			require.Equal(t, path, unsafe.Path)
			_, _, err = Holder(path)
			require.ErrorAs(t, err, &unsafe)

			after, err := os.Lstat(path)
			require.NoError(t, err)
			require.Equal(t, before.Mode(), after.Mode())
			require.NoFileExists(t, path+".none")
		})
	}
}

func TestLockOnARemovedFileDoesNotCount(t *testing.T) {
	path := lockPath(t)
	l, err := Acquire(ended(), path, me)
	require.NoError(t, err)
	require.True(t, same(l.f, path))
	require.NoError(t, os.Remove(path))
	require.False(t, same(l.f, path))
	require.NoError(t, l.Release())
}
