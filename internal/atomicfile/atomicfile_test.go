// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// writerMode makes the test binary a process that replaces a file for ever.
const writerMode = "write-for-ever"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == writerMode {
		go func() { // not for ever if the test dies
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1)
		}()
		for i := 0; ; i++ {
			if err := Write(os.Args[2], version(i)); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
	}
	os.Exit(m.Run())
}

// version is content of which every byte is the same.
func version(i int) []byte { return bytes.Repeat([]byte{byte('a' + i%26)}, 64<<10) }

// privateDir does not depend on the umask, as t.TempDir does.
func privateDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "private")
	require.NoError(t, os.Mkdir(dir, 0o700))
	return dir
}

// names lists a directory.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	list := []string{}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestWrittenContentIsReadBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "deep", "f.json")
	for _, data := range []string{"one", "", "a longer one"} {
		require.NoError(t, Write(path, []byte(data)))
		got, err := Read(path, 100)
		require.NoError(t, err)
		require.Equal(t, data, string(got))
	}
	require.Equal(t, []string{"f.json"}, names(t, filepath.Dir(path)))
}

func TestMissingFileOrDirectoryIsNotExist(t *testing.T) {
	dir := privateDir(t)
	for _, path := range []string{filepath.Join(dir, "f"), filepath.Join(dir, "no", "f")} {
		_, err := Read(path, 100)
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.ErrorContains(t, err, path)
	}
}

func TestSizeLimitIsInclusive(t *testing.T) {
	path := filepath.Join(privateDir(t), "f")
	require.NoError(t, Write(path, []byte("12345")))
	_, err := Read(path, 5)
	require.NoError(t, err)
	_, err = Read(path, 4)
	var unsafe *UnsafeError
	require.ErrorAs(t, err, &unsafe)
	require.Equal(t, path, unsafe.Path)
}

func TestDirectoryIsNotAFile(t *testing.T) {
	_, err := Read(privateDir(t), 100)
	var unsafe *UnsafeError
	require.ErrorAs(t, err, &unsafe)
}

func TestFailedWriteLeavesNothingBehind(t *testing.T) {
	dir := privateDir(t)
	path := filepath.Join(dir, "f")
	require.NoError(t, os.MkdirAll(filepath.Join(path, "old"), 0o700)) // a rename over it must fail
	err := Write(path, []byte("x"))
	require.ErrorContains(t, err, path)
	require.Equal(t, []string{"f"}, names(t, dir))
	require.Equal(t, []string{"old"}, names(t, path))
}

func TestOnlyOurLeftoversAreRemoved(t *testing.T) {
	dir := privateDir(t)
	keep := []string{"f.json", ".f.json", ".f.json.tmp", ".f.json12x", ".g.json12", "f.json12"}
	for _, name := range append([]string{".f.json1234567890", ".f.json0"}, keep...) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, ".f.json77"), 0o700)) // not regular
	RemoveLeftovers(filepath.Join(dir, "f.json"))
	require.ElementsMatch(t, append(keep, ".f.json77"), names(t, dir))

	RemoveLeftovers(filepath.Join(dir, "missing", "f.json")) // nothing to do, nothing to say
}

func TestConcurrentReadersSeeWholeVersions(t *testing.T) {
	path := filepath.Join(privateDir(t), "f")
	require.NoError(t, Write(path, version(0)))
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			for i := range 30 {
				if err := Write(path, version(w+i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Go(func() {
		for range 200 {
			requireWhole(t, path)
		}
	})
	wg.Wait()
}

// requireWhole may run beside the test's goroutine.
func requireWhole(t *testing.T, path string) {
	got, err := Read(path, 1<<20)
	if err != nil || len(got) != len(version(0)) || len(bytes.Trim(got, string(got[:1]))) != 0 {
		t.Errorf("%d bytes that are no whole version: %v", len(got), err)
	}
}

func TestKilledWriterLeavesAWholeFile(t *testing.T) {
	exe, err := os.Executable()
	require.NoError(t, err)
	for round := range 5 {
		path := filepath.Join(privateDir(t), "f")
		cmd := exec.Command(exe, writerMode, path)
		_, err := cmd.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool { _, err := Read(path, 1<<20); return err == nil },
			10*time.Second, time.Duration(round+1)*time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())

		requireWhole(t, path)
		RemoveLeftovers(path)
		require.Equal(t, []string{"f"}, names(t, filepath.Dir(path)))
	}
}
