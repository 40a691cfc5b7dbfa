// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestTheCPUClockAgreesWithTheKernelsAccounting(t *testing.T) {
	used := func() time.Duration {
		var usage unix.Rusage
		require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &usage))
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	before, err := readActivity(os.Getpid())
	require.NoError(t, err)
	usedBefore := used()
	for used()-usedBefore < 50*time.Millisecond { // burns what is then measured
	}
	after, err := readActivity(os.Getpid())
	require.NoError(t, err)
	require.InDelta(t, 50, ms(after.cpu-before.cpu), 25)
}

func TestMemoryOfThisProcessIsReadInBytes(t *testing.T) {
	m, err := readMemory(os.Getpid())
	require.NoError(t, err)
	require.Greater(t, m.rss, 1e6)
	require.GreaterOrEqual(t, m.rss, m.pss)
	require.InDelta(t, m.pss, m.anon+m.file, 0.1*m.pss)
}

func TestEveryChangeOfAFileIsSeen(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"same", "longer", "gone"} {
		require.NoError(t, os.WriteFile(path(name), []byte("a"), 0o600))
	}
	at := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(dir, at, at)) // or the new entries could fall into the clock's last tick
	before, err := filesOf(dir)
	require.NoError(t, err)

	require.NoError(t, os.WriteFile(path("longer"), []byte("ab"), 0o600))
	require.NoError(t, os.Remove(path("gone")))
	require.NoError(t, os.WriteFile(path("new"), nil, 0o600))
	after, err := filesOf(dir)
	require.NoError(t, err)
	require.Equal(t, []string{dir, path("gone"), path("longer"), path("new")}, changes(before, after))
	require.Empty(t, changes(after, after))
}

func TestOnlyAResultCountsAsAnswered(t *testing.T) {
	for line, want := range map[string]int{
		`{"jsonrpc":"2.0","id":17,"result":{"pong":true}}`:                 17,
		`{"jsonrpc":"2.0","id":17,"error":{"code":-32601,"message":"no"}}`: 0,
		`{"jsonrpc":"2.0","method":"app:ready","params":{"id":17}}`:        0,
		`{"jsonrpc":"2.0","id":"17","result":null}`:                        0,
		``: 0,
	} {
		id, ok := answered([]byte(line))
		require.Equal(t, want, id, line)
		require.Equal(t, want != 0, ok, line)
	}
	require.True(t, isError([]byte(`{"jsonrpc":"2.0","id":17,"error":{"code":-32601,"message":"no"}}`)))
	require.False(t, isError([]byte(`{"jsonrpc":"2.0","id":17,"result":{"error":1}}`)))
	require.Equal(t, `{"jsonrpc":"2.0","id":3,"method":"a","params":{}}`+"\n", string(frame(nil, 3, "a", "{}")))
}
